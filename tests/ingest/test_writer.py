"""Blocks of messages, good and bad, into a real store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest import log, writer
from ingest.log import Message
from ingest.otlp import JSON
from ingest.store import Store
from ingest.writer import write
from tests.ingest.otlp_samples import ODD, UNREADABLE, span_request

EMPTY = "ingest_rejects", "dead_letters", "otel_traces"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("writer"))) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in EMPTY:
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def spans(first: int, count: int = 1) -> bytes:
    return b"".join(
        span_request(1, trace_id=at.to_bytes(16, "big")).SerializeToString() for at in range(first, first + count)
    )


def test_bad_messages_become_letters_and_the_rest_is_stored(store: Store) -> None:
    bad = [Message(log.TRACES, 0, at, body) for at, body in enumerate(UNREADABLE.values())]
    odd = [Message(log.TRACES, 1, at, make()) for at, (make, _, _) in enumerate(ODD.values())]
    strange = [
        Message("otlp_profiles", 0, 0, b"x"),
        Message(log.LOGS, 0, 0, b"{", {"content-type": JSON}),
        Message(log.LOGS, 0, 1, b"", {"content-type": "avro"}),
    ]
    good = [Message(log.TRACES, 2, 0, spans(1, 3))]
    written = write(store, [*bad, *odd, *strange, *good], "t1")
    assert written.dead == len(bad) + 3
    assert written.rejected == sum(sum(reasons.values()) for _, _, reasons in ODD.values())
    assert written.stored == sum(kept for _, kept, _ in ODD.values()) + 3
    letters = store.read("SELECT Reason, Value FROM dead_letters ORDER BY Topic, Offset")
    assert set(letters["Reason"]) == {"bad-protobuf", "unknown-topic", "bad-json", "bad-encoding"}
    assert store.value("SELECT sum(Count) FROM ingest_rejects") == written.rejected
    assert store.value("SELECT count() FROM otel_traces WHERE length(TraceId) != 32 OR length(SpanId) != 16") == 0


def test_the_same_block_again_changes_nothing(store: Store) -> None:
    messages = [Message(log.TRACES, 0, 0, spans(1, 50)), Message(log.TRACES, 0, 1, b"\xff")]
    first = write(store, messages, "t2")
    assert write(store, messages, "t2") == first
    for table, rows in (("otel_traces", 50), ("dead_letters", 1)):
        store.command("SYSTEM STOP MERGES")
        assert store.client.command(f"SELECT count() FROM {table} SETTINGS final = 0") == rows
    store.command("SYSTEM START MERGES")


def test_the_same_spans_in_other_blocks_count_once(store: Store) -> None:
    for token in ("t3", "t4", "t5"):
        write(store, [Message(log.TRACES, 0, 0, spans(1, 20))], token)
    assert store.value("SELECT count() FROM otel_traces") == 20


def test_large_blocks_go_in_several_parts_side_by_side(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHUNK_BYTES", 2000)
    messages = [Message(log.TRACES, 0, at, spans(at * 10 + 1, 10)) for at in range(30)]
    with ThreadPoolExecutor(2) as pool:
        assert write(store, messages, "t6", None, pool).stored == 300
        assert write(store, messages, "t6", None, pool).stored == 300
    assert store.value("SELECT uniqExact(TraceId) FROM otel_traces") == 300
    assert store.client.command("SELECT count() FROM otel_traces SETTINGS final = 0") == 300


def test_checked_messages_are_not_read_again(store: Store) -> None:
    header = {log.CHECKED: log.CHECKED_VERSION}
    assert write(store, [Message(log.TRACES, 0, 0, spans(1, 4), header)], "t7").stored == 4
    assert store.value("SELECT count() FROM otel_traces") == 4


@pytest.mark.parametrize("body", [b"\xff\xff", spans(9)[:-3], spans(9) + b"\x0a\x7f"])
def test_a_header_that_lies_harms_nobody(store: Store, body: bytes) -> None:
    header = {log.CHECKED: log.CHECKED_VERSION}
    written = write(
        store, [Message(log.TRACES, 0, 0, body, header), Message(log.TRACES, 0, 1, spans(1, 2))], f"t8 {body!r}"
    )
    assert (written.stored, written.dead) == (2, 1)
    assert store.value("SELECT count() FROM otel_traces") == 2


def test_a_request_over_a_hundred_days_is_stored(store: Store) -> None:
    body = b"".join(
        span_request(
            1, trace_id=(day + 1).to_bytes(16, "big"), start_time_unix_nano=day * 86_400 * 10**9 + 1
        ).SerializeToString()
        for day in range(1, 151)
    )
    assert write(store, [Message(log.TRACES, 0, 0, body)], "t9").stored == 150
    assert store.value("SELECT uniqExact(toDate(Timestamp)) FROM otel_traces") == 150


COLLECTOR_TABLE = """
CREATE TABLE otel_traces (Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64, StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)))
ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""


def test_a_table_that_a_collector_made_is_read_and_written(opened: Store) -> None:
    location = str(opened.location.folder)
    opened.command("DROP TABLE otel_traces")
    opened.command(COLLECTOR_TABLE)
    opened.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanAttributes) VALUES ('2026-01-02 03:04:05', 'aa', 'bb', {'k': 'v'})"
    )
    with Store.open(location) as store:
        rows = store.read("SELECT toString(IngestedAt) AS at, Marks, SpanAttributeItems FROM otel_traces")
        assert (rows["at"][0], rows["Marks"][0], list(rows["SpanAttributeItems"][0])) == (
            "2026-01-02 03:04:05.000",
            "",
            ["k=v"],
        )
        assert write(store, [Message(log.TRACES, 0, 0, spans(1, 2))], "t10").stored == 2
        assert store.value("SELECT count() FROM otel_traces") == 3


def test_attributes_are_found_by_value_before_and_after_merging(opened: Store) -> None:
    opened.command("DROP TABLE otel_traces")
    with Store.open(str(opened.location.folder)) as store:
        request = span_request(1)
        request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="user.id").value.string_value = "ann"
        write(
            store,
            [Message(log.TRACES, 0, 0, request.SerializeToString()), Message(log.TRACES, 0, 1, spans(1, 100))],
            "t11",
        )
        write(store, [Message(log.TRACES, 0, 2, spans(101, 100))], "t12")
        find = "SELECT count() FROM otel_traces WHERE has(SpanAttributeItems, 'user.id=ann')"
        assert store.value(find) == 1
        store.command("OPTIMIZE TABLE otel_traces FINAL")
        assert store.value(find) == 1
        used = store.read(f"EXPLAIN indexes = 1 {find}").to_string()
        assert "idx_span_items" in used
