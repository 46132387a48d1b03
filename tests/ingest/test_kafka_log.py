"""The log on a real Kafka broker: the exam of every Source, the Collector's encodings, groups that share the work."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaProducer, codec

from ingest.errors import BadInput, BadSetting, Unavailable
from ingest.kafka_log import KafkaSink, KafkaSource
from ingest.kafka_place import COMPRESSIONS, KafkaPlace, kafka_place
from ingest.ledger import Ledger
from ingest.log import TRACES, Message, Sink, Source
from ingest.meter import Meter
from ingest.pipeline import Batch, Pipeline
from ingest.store import Store
from tests.contracts import SourceExam, commit_all, poll_some
from tests.ingest.otlp_samples import span_request


def place(kafka: str, **options: str) -> KafkaPlace:
    """A group of its own that begins at what comes next."""
    more = "&".join(f"{name}={value}" for name, value in options.items())
    group = options.get("group", uuid.uuid4().hex)
    return kafka_place(f"kafka://{kafka}?group={group}&session_timeout_ms=6000&heartbeat_interval_ms=500&{more}")


def settled(source: KafkaSource) -> None:
    """Poll until the group has given this member its partitions and their positions are known."""
    for _ in range(60):
        with suppress(Unavailable):
            source.poll(0.2)
        consumer = source._consumer
        if (
            consumer is not None
            and consumer.assignment()
            and all(consumer.position(part, timeout_ms=2000) is not None for part in consumer.assignment())
        ):
            return
    raise AssertionError("no partition was assigned")


@pytest.mark.kafka
class TestKafkaLog(SourceExam):
    @pytest.fixture
    def logs(self, kafka: str) -> Iterator[Callable[[], tuple[Source, Sink]]]:
        opened: list[KafkaSource | KafkaSink] = []

        def make() -> tuple[Source, Sink]:
            where = place(kafka, initial_offset="latest")
            source, sink = KafkaSource(where), KafkaSink(where)
            opened.extend((source, sink))
            settled(source)
            return source, sink

        yield make
        for one in opened:
            one.close()


@pytest.mark.kafka
def test_a_collectors_messages_of_both_encodings_are_stored_and_the_rest_is_refused(kafka: str, tmp_path: Path) -> None:
    source = KafkaSource(place(kafka, initial_offset="latest"))
    settled(source)
    producer = KafkaProducer(bootstrap_servers=kafka)
    otlp_json = (
        b'{"resourceSpans":[{"resource":{"attributes":[]},"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",'
        b'"spanId":"b7ad6b7169203331","name":"x","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000000000001000"}]}]}]}'
    )
    for value in (span_request(2).SerializeToString(), otlp_json, b"<14>not otlp at all"):
        producer.send(TRACES, value)
    producer.flush()
    with Store.open(str(tmp_path / "s")) as store:
        meter = Meter()
        pipeline = Pipeline(source, store, meter, Ledger(store), Batch(linger_s=0.3))
        while meter.total("consumed_messages") < 3:
            pipeline.step()
        assert store.value("SELECT count() FROM otel_traces") == 3
        assert store.value("SELECT groupArray(Topic) FROM dead_letters") == [TRACES]
    producer.close()
    source.close()


@pytest.mark.kafka
def test_what_one_member_leaves_the_other_takes_over_from_the_commit(kafka: str) -> None:
    group = uuid.uuid4().hex
    first = KafkaSource(place(kafka, group=group, initial_offset="latest"))
    settled(first)
    sink = KafkaSink(place(kafka))
    sink.append(TRACES, [b"a", b"b", b"c"])
    found = poll_some(first, 3)
    kept = [message for message in found if message.partition == found[0].partition]
    commit_all(first, kept[:1])
    first.close()
    second = KafkaSource(place(kafka, group=group))
    again = poll_some(second, 2)
    assert {message.value for message in again} == {b"a", b"b", b"c"} - {kept[0].value}
    second.close()
    sink.close()


@pytest.mark.kafka
def test_two_members_share_the_partitions(kafka: str) -> None:
    group = uuid.uuid4().hex
    one, two = (KafkaSource(place(kafka, group=group, initial_offset="latest")) for _ in range(2))
    settled(one)
    for _ in range(100):
        for member in (one, two):
            with suppress(Unavailable):  # while the group makes up its mind
                member.poll(0.1)
        if one._consumer.assignment() and two._consumer.assignment():
            break
    first, second = one._consumer.assignment(), two._consumer.assignment()
    assert first
    assert second
    assert not first & second
    one.close()
    two.close()


@pytest.mark.kafka
def test_an_element_larger_than_a_message_may_be_is_bad_input(kafka: str) -> None:
    sink = KafkaSink(place(kafka, compression="none"))
    with pytest.raises(BadInput) as told:
        sink.append(TRACES, [bytes(3 << 20)])
    assert told.value.reason == "message-too-large"
    sink.append(TRACES, [b"still at work"])
    sink.close()


@pytest.mark.kafka
@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_every_compression_comes_back(kafka: str, compression: str) -> None:
    where = place(kafka, compression=compression, initial_offset="latest")
    source, sink = KafkaSource(where), KafkaSink(where)
    settled(source)
    sink.append(TRACES, [compression.encode() * 1000])
    found: list[Message] = poll_some(source, 1)
    assert found[0].value == compression.encode() * 1000
    assert found[0].at_ms > 1_700_000_000_000
    source.close()
    sink.close()


def test_a_broker_that_is_away_is_unavailable_not_a_crash() -> None:
    where = KafkaPlace(("127.0.0.1:1",), client={"bootstrap_timeout_ms": 300})
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 does not answer"):
        KafkaSource(where).poll(0.1)
    with pytest.raises(Unavailable):
        KafkaSink(where).append(TRACES, [b"a"])


def test_addresses() -> None:
    where = kafka_place(
        "kafka://u:p%40ss@a,b:9093?security_protocol=SASL_SSL&sasl_mechanism=SCRAM-SHA-512&ssl_cafile=/ca.pem&compression=zstd"
    )
    assert where.brokers == ("a:9092", "b:9093")
    assert where.compression == "zstd"
    options = where.client_options()
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "p@ss")
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert options["ssl_cafile"] == "/ca.pem"
    assert "p@ss" not in repr(where)
    assert kafka_place("kafka://h").client_options()["bootstrap_servers"] == ["h:9092"]


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "http://x",
        "kafka://h?nope=1",
        "kafka://h?compression=rar",
        "kafka://h?security_protocol=X",
        "kafka://h?initial_offset=5",
        "kafka://h?session_timeout_ms=soon",
    ],
)
def test_addresses_without_meaning_stop_at_the_start(url: str) -> None:
    with pytest.raises(BadSetting):
        kafka_place(url)


@pytest.mark.parametrize("name", sorted(set(COMPRESSIONS) - {"none"}))
def test_every_compression_that_a_producer_may_use_can_be_read(name: str) -> None:
    squeeze, inflate = getattr(codec, f"{name}_encode"), getattr(codec, f"{name}_decode")
    assert getattr(codec, f"has_{name}")(), f"a message in {name} would stop its partition"
    assert inflate(squeeze(b"span" * 100)) == b"span" * 100
