"""The pipeline on a real embedded store: stored once, whatever is repeated, and resumed where the store was away."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from ingest.cutting import Cutter
from ingest.errors import Unavailable
from ingest.kafka_log import _message
from ingest.ledger import Block, Ledger
from ingest.log import LOGS, TRACES, Message
from ingest.memory_log import MemoryLog
from ingest.meter import Meter
from ingest.otlp_rows import TRACES as SPANS
from ingest.pipeline import Batch, Pipeline, Seen, start_embedded
from ingest.receiver import options
from ingest.settings import Settings
from ingest.store import Store
from tests.contracts import in_background
from tests.ingest.otlp_samples import START_NS, span_request


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "s")) as opened:
        yield opened


def batch(number: int, spans: int = 3) -> bytes:
    """A request with spans of their own."""
    request = span_request(spans)
    for index, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        span.span_id = (number * 1000 + index + 1).to_bytes(8, "big")
        span.start_time_unix_nano = START_NS + number
        span.end_time_unix_nano = START_NS + number + 1000
    return request.SerializeToString()


@dataclass
class Record:
    """What kafka-python hands out of the Collector's otlp_json: no header says so."""

    topic: str
    partition: int
    offset: int
    value: bytes
    timestamp: int = 0
    headers: list[tuple[str, bytes]] = field(default_factory=list)


class Replayed:
    """A source that delivers what it is told, from what was committed, like a partition of Kafka."""

    def __init__(self, values: list[bytes], per_poll: int, topic: str = TRACES) -> None:
        self.messages = [Message(topic, 0, offset, value) for offset, value in enumerate(values)]
        self.committed, self.position, self.per_poll, self.epoch = 0, 0, per_poll, 0
        self.commit_fails = False

    def poll(self, timeout_s: float) -> list[Message]:
        found = self.messages[self.position : self.position + self.per_poll]
        self.position += len(found)
        return found

    def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        if self.commit_fails:
            raise Unavailable("the coordinator is away")
        self.committed = max(offsets.values())

    def rewind(self) -> None:
        self.position = self.committed
        self.epoch += 1

    def keep_alive(self) -> None: ...

    def lag(self) -> int:
        return len(self.messages) - self.position

    def close(self) -> None: ...


QUICK = Batch(max_bytes=1 << 20, linger_s=0.01, idle_s=0.01)


def spans(store: Store) -> int:
    return int(store.value("SELECT count() FROM otel_traces"))


def raw_spans(store: Store) -> int:
    """Without final: what was really written."""
    return int(store.command("SELECT count() FROM otel_traces"))


def test_what_the_sink_acknowledged_is_stored(store: Store) -> None:
    embedded = start_embedded(store, Meter())
    embedded.sink.append(TRACES, [batch(1), batch(2)])
    assert spans(store) == 6
    embedded.stop()
    with pytest.raises(Unavailable):
        embedded.sink.append(TRACES, [batch(3)])


def test_the_same_request_five_times_is_stored_once_and_acknowledged_each_time(store: Store) -> None:
    meter = Meter()
    embedded = start_embedded(store, meter)
    for _ in range(5):
        embedded.sink.append(TRACES, [batch(1)])
    embedded.stop()
    assert raw_spans(store) == 3
    assert meter.total("duplicate_messages") == 4
    assert meter.total("stored") == 3


def test_the_same_block_after_a_restart_keeps_its_bounds_and_token(store: Store) -> None:
    source = Replayed([batch(number) for number in range(5)], per_poll=2)
    source.commit_fails = True
    with pytest.raises(Unavailable):
        Pipeline(source, store, Meter(), Ledger(store), Batch(max_bytes=1, linger_s=0.01)).step()
    assert raw_spans(store) == 6
    # a new process: nothing remembered, other batch sizes, and more messages in the log
    source.commit_fails, source.position, source.per_poll = False, 0, 5
    meter = Meter()
    pipeline = Pipeline(source, store, meter, Ledger(store), QUICK)
    pipeline.step()
    assert source.committed == 5
    assert raw_spans(store) == 15
    assert meter.total("repeated_blocks") == 1


def test_a_begun_block_waits_for_all_its_messages(store: Store) -> None:
    ledger = Ledger(store)
    source = Replayed([batch(number) for number in range(4)], per_poll=3)
    source.commit_fails = True
    with pytest.raises(Unavailable):
        Pipeline(source, store, Meter(), ledger, Batch(max_bytes=1, linger_s=0.01)).step()
    source.commit_fails, source.position, source.per_poll = False, 0, 1
    pipeline = Pipeline(source, store, Meter(), ledger, Batch(max_bytes=1, linger_s=0.01))
    stored = [pipeline.step() for _ in range(4)]
    assert source.committed == 4
    assert stored[0] == stored[1] == 0
    assert raw_spans(store) == 12


def test_a_topic_made_anew_is_not_taken_for_the_old_one(store: Store) -> None:
    for number in (1, 2):
        source = Replayed([batch(number)], per_poll=1)
        Pipeline(source, store, Meter(), Ledger(store), QUICK).step()
        assert source.committed == 1
    assert spans(store) == 6


def test_a_begun_block_whose_messages_are_gone_does_not_stop_the_partition() -> None:
    class Known:
        def blocks_from(self, topic: str, partition: int, first: int) -> list[Block]:
            return [Block(TRACES, 0, 0, 10, "gone")]

    cutter = Cutter(Known())  # type: ignore[arg-type]
    message = Message(TRACES, 0, 0, b"a")
    assert cutter.cut([message]) == []
    cutter._since[(TRACES, 0)] -= 10
    [cut] = cutter.cut([])
    assert (cut.block.first, cut.block.end, cut.repeated) == (0, 1, False)


def test_bad_messages_are_rows_and_their_neighbours_are_kept(store: Store) -> None:
    source = Replayed([batch(1), b"\xff\xff\xff", batch(2)], per_poll=3)
    meter = Meter()
    Pipeline(source, store, meter, Ledger(store), QUICK).step()
    assert spans(store) == 6
    assert source.committed == 3
    letters = store.read("SELECT Topic, Partition, Offset, Reason, Value FROM dead_letters")
    assert [tuple(row)[:3] for row in letters.itertuples(index=False)] == [(TRACES, 0, 1)]
    assert meter.total("dead_letters") == 1


def test_the_store_away_stops_nothing_for_good(store: Store) -> None:
    log, meter, stop = MemoryLog(), Meter(), threading.Event()
    store.command("RENAME TABLE otel_traces TO hidden")
    thread = threading.Thread(target=Pipeline(log, store, meter, batch=QUICK).run, args=(stop,), daemon=True)
    thread.start()
    append, trouble = in_background(log, TRACES, [batch(1)])
    while not meter.total("store_away"):
        stop.wait(0.01)
    store.command("RENAME TABLE hidden TO otel_traces")
    append.join(20)
    stop.set()
    thread.join(20)
    assert not append.is_alive()
    assert not trouble
    assert spans(store) == 3


def test_every_signal_has_blocks_of_its_own(store: Store) -> None:
    log = MemoryLog()
    pipeline = Pipeline(log, store, Meter(), batch=QUICK)
    threads = [in_background(log, topic, [batch(1)])[0] for topic in (TRACES, LOGS)]
    while any(thread.is_alive() for thread in threads):
        pipeline.step()
    assert spans(store) == 3


def test_seen_is_bounded() -> None:
    seen = Seen(3)
    seen.add([b"1", b"2", b"3", b"4"])
    assert b"1" not in seen
    assert b"4" in seen


def test_what_comes_through_kafka_is_masked_as_the_settings_say(store: Store) -> None:
    request = span_request(1)
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="user.id").value.string_value = "ada"
    settings = Settings(mask_users="drop")
    source = Replayed([request.SerializeToString()], per_poll=1)
    Pipeline(source, store, Meter(), Ledger(store), QUICK, options(settings)).step()
    assert store.value("SELECT SpanAttributes['user.id'] FROM otel_traces") == "[masked 3 bytes]"


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_logs_of_a_consumer_that_died_before_its_commit_count_once(store: Store, encoding: str) -> None:
    requests = [ExportLogsServiceRequest() for _ in range(4)]
    for number, request in enumerate(requests):
        records = request.resource_logs.add().scope_logs.add().log_records
        for index in range(3):
            records.add(time_unix_nano=START_NS + number).body.string_value = f"line {number}.{index}"
    to_bytes = {"protobuf": lambda r: r.SerializeToString(), "json": lambda r: MessageToJson(r).encode()}[encoding]
    source = Replayed([to_bytes(request) for request in requests], per_poll=3, topic=LOGS)
    if encoding == "json":
        source.messages = [replace(each, headers={"content-type": "application/json"}) for each in source.messages]
    source.commit_fails = True
    with pytest.raises(Unavailable):
        Pipeline(source, store, Meter(), Ledger(store), QUICK).step()
    source.commit_fails, source.per_poll = False, 4  # the next consumer polls otherwise, and cuts as the first did
    source.rewind()
    restarted = Pipeline(source, store, Meter(), Ledger(store), QUICK)
    while source.committed < 4:
        restarted.step()
    found = store.read("SELECT count() AS rows, uniqExact(Body) AS lines FROM otel_logs SETTINGS final = 0").iloc[0]
    assert (int(found["rows"]), int(found["lines"])) == (12, 12)


def test_json_in_kafka_stores_what_protobuf_stores(store: Store) -> None:
    request = span_request(4)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="n").value.int_value = 2**60
    span.attributes.add(key="d").value.double_value = 0.25
    span.attributes.add(key="m").value.kvlist_value.values.add(key="a").value.string_value = "é"
    span.events.add(name="e", time_unix_nano=START_NS)
    document = MessageToDict(request)
    for each in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        each.update({name: base64.b64decode(each[name]).hex() for name in ("traceId", "spanId")})
    found = []
    for value in (request.SerializeToString(), json.dumps(document).encode()):
        source = Replayed([value], per_poll=1)
        source.messages = [_message(Record(TRACES, 0, 0, value))]
        Pipeline(source, store, Meter(), None, QUICK).step()
        rows = store.read_arrow(
            f"SELECT {', '.join(f'`{name}`' for name in SPANS.names)} FROM otel_traces ORDER BY SpanId"
        )
        found.append(rows.to_pylist())
        store.command("TRUNCATE TABLE otel_traces")
    assert len(found[0]) == 4
    assert found[0] == found[1]
