"""The fast way in equals the slow, exact one: for every request, in the bytes and in the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest import log
from ingest.limits import Limits
from ingest.otlp import check, decode
from ingest.otlp_clean import Tally, clean
from ingest.otlp_decode import FORMAT, TABLE, count_spans, decode_settings
from ingest.otlp_fast import Sifted, sift
from ingest.otlp_rows import TRACES
from ingest.otlp_split import split
from ingest.otlp_wire import field
from ingest.store import Store
from tests.ingest.otlp_samples import first_span, span_request
from tests.ingest.otlp_strategies import requests

COLUMNS = ", ".join(f"`{name}`" for name in TRACES.names)
ROWS = f"SELECT {COLUMNS} FROM otel_traces ORDER BY SpanId, Timestamp, TraceId"
PURE = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
STORED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("decode"))) as opened:
        yield opened


def rows(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read_arrow(ROWS).to_pylist()
    store.command("TRUNCATE TABLE otel_traces")
    return found


def stored_both_ways(store: Store, body: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    for name, table in decode(log.TRACES, body).tables.items():
        store.insert(name, table)
    slow = rows(store)
    clean_bytes = check(log.TRACES, body).clean
    if clean_bytes:
        store.insert_bytes(TABLE, FORMAT, clean_bytes, settings=decode_settings(local=store.local))
    return slow, rows(store)


@given(request=requests())
@STORED
def test_clickhouse_makes_the_same_rows(store: Store, request: ExportTraceServiceRequest) -> None:
    slow, fast = stored_both_ways(store, request.SerializeToString())
    assert fast == slow


def test_nothing_is_left_in_the_current_directory(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, fast = stored_both_ways(store, span_request(3).SerializeToString())
    assert len(fast) == 3
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_value(store: Store) -> None:
    request = span_request(1)
    put = first_span(request).attributes.add
    for number in (0.0, -0.0, 0.1, 1e16, 1e20, 1e21, -1.5e22, 1e-5, 1e-6, 9.5e-7, 1e-7, 5e-324, 1.7e308, 1 / 3):
        put(key=f"double {number}").value.double_value = number
    for name in ("nan", "inf", "-inf"):
        put(key=name).value.double_value = float(name)
    for whole in (0, -1, 2**63 - 1, -(2**63)):
        put(key=f"int {whole}").value.int_value = whole
    put(key="yes").value.bool_value = True
    put(key="no").value.bool_value = False
    put(key="bytes").value.bytes_value = bytes(range(256))
    put(key="none").value.SetInParent()
    put(key="empty text").value.string_value = ""
    put(key="empty list").value.array_value.SetInParent()
    put(key="list").value.array_value.values.add().double_value = 1e21
    for number in (1, 2):
        event = first_span(request).events.add(name=f"event {number}", time_unix_nano=number)
        event.attributes.add(key="n").value.int_value = number
        link = first_span(request).links.add(
            trace_id=bytes([number]) * 16, span_id=bytes([number]) * 8, trace_state="a=b"
        )
        link.attributes.add(key="n").value.int_value = number
    slow, fast = stored_both_ways(store, request.SerializeToString())
    assert fast == slow
    assert (fast[0]["Events.Name"], fast[0]["Links.SpanId"]) == (["event 1", "event 2"], ["01" * 8, "02" * 8])
    assert (fast[0]["Events.Attributes"], fast[0]["Links.Attributes"]) == ([[("n", "1")], [("n", "2")]],) * 2
    stored = dict(fast[0]["SpanAttributes"])
    assert stored["double 1e+21"] == "1e+21"
    assert stored["double 1e-07"] == "1e-7"
    assert stored["double 1e-05"] == "0.00001"
    assert stored["double -0.0"] == "-0"
    assert (stored["nan"], stored["inf"], stored["-inf"]) == ("NaN", "Infinity", "-Infinity")
    assert (stored["yes"], stored["no"], stored["int -1"], stored["none"]) == ("true", "false", "-1", "")
    assert (stored["empty list"], stored["list"]) == ("[]", "[1e+21]")


@pytest.mark.parametrize("number", [1, 3, 400])
def test_requests_one_after_the_other_are_one(store: Store, number: int) -> None:
    body = b"".join(span_request(2, trace_id=at.to_bytes(16, "big")).SerializeToString() for at in range(1, number + 1))
    assert count_spans(body) == 2 * number
    slow, fast = stored_both_ways(store, body)
    assert len(fast) == number + 1  # the second span of each is one and the same
    assert fast == slow


@given(request=requests())
@PURE
def test_what_is_plain_needs_no_cleaning(request: ExportTraceServiceRequest) -> None:
    body = request.SerializeToString()
    sifted = sift(body, Limits())
    assert sifted is not None
    odd = {body[part.start : part.end] for part in sifted.odd if part.kind is Span}
    spans = [span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
    assert sifted.spans == len(spans)
    for span in spans:
        before = span.SerializeToString()
        alone = ExportTraceServiceRequest()
        alone.resource_spans.add().scope_spans.add().spans.append(span)
        tally = Tally(Limits())
        clean(alone, tally)
        assert not tally.changed or before in odd


@pytest.mark.parametrize("name", ["trace_id", "span_id", "name", "start_time_unix_nano", "end_time_unix_nano"])
def test_a_span_with_a_field_twice_does_not_hide_one_without(name: str) -> None:
    one, other = span_request(2).resource_spans[0].scope_spans[0].spans
    spans = [one.SerializeToString(), other.SerializeToString()]
    assert sift(field(1, field(2, b"".join(field(2, span) for span in spans))), Limits()) == Sifted(2, ())
    twice = Span()
    setattr(twice, name, getattr(one, name))
    other.ClearField(name)
    spans = [one.SerializeToString() + twice.SerializeToString(), other.SerializeToString()]
    sifted = sift(field(1, field(2, b"".join(field(2, span) for span in spans))), Limits())
    assert sifted is not None
    assert len(sifted.odd) == 1


@given(request=requests())
@PURE
def test_check_equals_decode_and_is_final(request: ExportTraceServiceRequest) -> None:
    body = request.SerializeToString()
    checked, decoded = check(log.TRACES, body), decode(log.TRACES, body)
    assert (checked.accepted, list(checked.rejects)) == (decoded.accepted, list(decoded.rejects))
    again, rows_again = check(log.TRACES, checked.clean), decode(log.TRACES, checked.clean)
    assert (again.clean, again.accepted, again.rejects) == (checked.clean, checked.accepted, [])
    assert {name: table.to_pylist() for name, table in rows_again.tables.items()} == {
        name: table.to_pylist() for name, table in decoded.tables.items()
    }


@given(request=requests(), most_bytes=st.integers(1, 2000))
@PURE
def test_splitting_keeps_every_span_in_order(request: ExportTraceServiceRequest, most_bytes: int) -> None:
    body = request.SerializeToString()
    parts = split(log.TRACES, body, most_bytes)
    whole = [row for part in parts for table in decode(log.TRACES, part).tables.values() for row in table.to_pylist()]
    assert whole == [row for table in decode(log.TRACES, body).tables.values() for row in table.to_pylist()]
    assert all(len(part) <= most_bytes or count_spans(part) == 1 for part in parts if len(body) > most_bytes)


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({"name": ""}, "no-name"),
        ({"end_time_unix_nano": 5}, "negative-duration"),
        ({"end_time_unix_nano": 0}, "no-end"),
        ({"start_time_unix_nano": 0}, "no-start"),
        ({"parent_span_id": b"abc"}, "bad-parent"),
    ],
)
def test_mended_spans_are_marked(store: Store, change: dict[str, Any], mark: str) -> None:
    slow, fast = stored_both_ways(store, span_request(1, **change).SerializeToString())
    assert fast == slow
    assert (fast[0]["Marks"], fast[0]["Duration"]) == (mark, 1000 if mark in ("no-name", "bad-parent") else 0)


def test_long_things_are_cut_and_marked(store: Store) -> None:
    request = span_request(2)
    span = first_span(request)
    span.name = "n" * 5000
    span.attributes.add(key="k" * 3000).value.string_value = "é" * 600_000
    for number in range(2000):
        span.attributes.add(key=f"a{number}").value.int_value = number
        span.events.add(name="e")
    slow, fast = stored_both_ways(store, request.SerializeToString())
    assert fast == slow
    long, other = fast
    stored = dict(long["SpanAttributes"])
    assert (long["Marks"], other["Marks"]) == ("truncated", "")
    assert (len(long["SpanName"]), len(stored), len(long["Events.Name"])) == (4096, 1024, 1024)
    assert len(stored["k" * 2048].encode()) <= 1024 * 1024
