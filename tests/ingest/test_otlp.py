"""The exact path: what is stored of spans, logs and metrics equals what the Collector's ClickHouse exporter stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import log
from ingest.errors import BadInput
from ingest.otlp import JSON, check, decode, decode_document
from ingest.otlp_text import float_text, value_text
from ingest.store import Store
from tests.ingest.otlp_samples import ODD, START_NS, UNREADABLE, first_span, span_request
from tests.ingest.otlp_strategies import requests, values

EXAMPLES = Path(__file__).parents[2] / "../shared/data/odd-traces/otlp"


def one_row(topic: str, body: bytes, encoding: str = "application/x-protobuf") -> dict[str, Any]:
    (table,) = decode(topic, body, encoding).tables.values()
    row: dict[str, Any] = table.to_pylist()[0]
    return row


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"), (0.1, "0.1"), (-0.0, "-0"), (1e-5, "0.00001"), (1e-6, "0.000001"), (9.9e-7, "9.9e-7"), (1e16, "10000000000000000"),
        (1.2345e20, "123450000000000000000"), (1e21, "1e+21"), (1.5e22, "1.5e+22"), (5e-324, "5e-324"), (123456.789, "123456.789"),
    ],
)  # fmt: skip
def test_doubles_look_as_go_prints_them(number: float, text: str) -> None:
    assert float_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_means_the_same_number(number: float) -> None:
    assert float(float_text(number)) == number


@given(values)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_nested_text_is_compact_json_with_sorted_keys(value: Any) -> None:
    text = value_text(value)
    if value.WhichOneof("value") in ("array_value", "kvlist_value"):
        again = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert len(json.loads(text)) == len(json.loads(again))
        assert "\u2028" not in text


def test_nested_values_and_their_order() -> None:
    request = span_request(1)
    value = first_span(request).attributes.add(key="messages").value.kvlist_value
    value.values.add(key="b").value.bytes_value = b"\x00\xff"
    value.values.add(key="a").value.double_value = 0.5
    value.values.add(key="<").value.string_value = '</é"\u2028'
    value.values.add(key="nan").value.double_value = float("nan")
    stored = dict(one_row(log.TRACES, request.SerializeToString())["SpanAttributes"])["messages"]
    assert stored == '{"<":"</é\\"\\u2028","a":0.5,"b":"AP8=","nan":null}'


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_are_counted_by_reason(name: str) -> None:
    make, kept, reasons = ODD[name]
    found = decode(log.TRACES, make())
    assert found.accepted == kept
    assert {reject.reason: reject.count for reject in found.rejects} == reasons
    assert all(reject.detail for reject in found.rejects)


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_says_so(name: str) -> None:
    with pytest.raises(BadInput, match="truncated, damaged or nested too deep"):
        decode(log.TRACES, UNREADABLE[name])


@given(request=requests())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_json_means_what_protobuf_means(request: ExportTraceServiceRequest) -> None:
    """The standard protobuf JSON of a request: base64 ids, names for numbers, 64-bit numbers as text, NaN as text."""
    wanted = decode(log.TRACES, request.SerializeToString())
    for snake in (False, True):
        document = MessageToDict(request, preserving_proto_field_name=snake)
        try:
            body = json.dumps(document).encode()
        except UnicodeEncodeError:
            continue
        found = decode(log.TRACES, body, JSON)
        got = [table.to_pylist() for table in found.tables.values()]
        assert got == [table.to_pylist() for table in wanted.tables.values()] or found.rejects
        assert found.accepted + sum(each.count for each in found.rejects) == wanted.accepted + wanted.rejected


def test_lists_and_bare_resources_are_read_too() -> None:
    span = {
        "traceId": "ab" * 16,
        "spanId": "cd" * 8,
        "name": "x",
        "startTimeUnixNano": START_NS,
        "endTimeUnixNano": str(START_NS),
    }
    resource = {"resource": {}, "scopeSpans": [{"spans": [span]}]}
    for document in ({"resourceSpans": [resource]}, [{"resourceSpans": [resource]}], [resource], resource):
        assert decode_document(log.TRACES, document).accepted == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"traceId": "zz" * 16}, "bad-trace-id"), ({"spanId": "123"}, "bad-span-id"), ({"startTimeUnixNano": "soon"}, "bad-value"),
        ({"endTimeUnixNano": -1}, "time-out-of-range"), ({"startTimeUnixNano": 10**21}, "time-out-of-range"), ({"name": []}, "bad-value"),
        ({"kind": "SPAN_KIND_ODD"}, "bad-value"), ({"attributes": [5]}, "bad-json"),
    ],
)  # fmt: skip
def test_a_bad_json_span_leaves_its_neighbours(change: dict[str, Any], reason: str) -> None:
    good = {
        "traceId": "ab" * 16,
        "spanId": "cd" * 8,
        "name": "x",
        "startTimeUnixNano": START_NS,
        "endTimeUnixNano": START_NS,
    }
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [good, {**good, **change}, good]}]}]}
    found = decode(log.TRACES, json.dumps(document).encode(), JSON)
    assert (found.accepted, [(each.reason, each.count) for each in found.rejects]) == (2, [(reason, 1)])


def test_log_records() -> None:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add(schema_url="u")
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    group = resource.scope_logs.add()
    record = group.log_records.add(observed_time_unix_nano=START_NS, severity_number=9, trace_id=b"t" * 16, flags=0x101)  # type: ignore[arg-type]
    record.body.array_value.values.add().int_value = 7
    group.log_records.add(time_unix_nano=2**64 - 1)
    found = decode(log.LOGS, request.SerializeToString())
    assert [(each.reason, each.count) for each in found.rejects] == [("time-out-of-range", 1)]
    (row,) = found.tables["otel_logs"].to_pylist()
    assert (row["Body"], row["SeverityNumber"], row["TraceFlags"], row["ServiceName"]) == ("[7]", 9, 1, "shop")
    assert row["Timestamp"].value == START_NS


def metrics_request() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    metrics = resource.scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(time_unix_nano=START_NS, as_int=5)
    total = metrics.add(name="s").sum
    total.is_monotonic, total.aggregation_temporality = True, 2  # type: ignore[assignment]
    point = total.data_points.add(time_unix_nano=START_NS, as_double=0.5)
    point.exemplars.add(time_unix_nano=START_NS, as_int=3, trace_id=b"t" * 16).filtered_attributes.add(key="k")
    metrics.add(name="h").histogram.data_points.add(
        time_unix_nano=START_NS, count=3, sum=6, bucket_counts=[1, 2], explicit_bounds=[1]
    )
    exponential = metrics.add(name="e").exponential_histogram.data_points.add(
        time_unix_nano=START_NS, count=3, scale=2, zero_count=1
    )
    exponential.positive.offset = -4
    exponential.positive.bucket_counts.extend([1, 1])
    metrics.add(name="q").summary.data_points.add(time_unix_nano=START_NS, count=1).quantile_values.add(
        quantile=0.5, value=9
    )
    metrics.add(name="empty")
    metrics.add(name="").gauge.data_points.add(time_unix_nano=START_NS)
    metrics.add(name="late").gauge.data_points.add()
    return request


def test_five_kinds_of_metrics(tmp_path: Path) -> None:
    found = decode(log.METRICS, metrics_request().SerializeToString())
    assert found.accepted == 5
    assert {each.reason: each.count for each in found.rejects} == {"no-data": 1, "no-name": 1, "no-time": 1}
    with Store.open(str(tmp_path)) as store:
        for name, table in found.tables.items():
            store.insert(name, table)
            store.insert(name, table)
            assert store.value(f"SELECT count() FROM {name}") == 1
        assert store.value("SELECT Value FROM otel_metrics_gauge") == 5
        assert store.value("SELECT (Value, IsMonotonic, AggregationTemporality, Exemplars.Value, Exemplars.TraceId) FROM otel_metrics_sum") == (
            0.5, True, 2, [3.0], [(b"t" * 16).hex()],
        )  # fmt: skip
        assert store.value("SELECT (BucketCounts, ExplicitBounds, Sum) FROM otel_metrics_histogram") == (
            [1, 2],
            [1.0],
            6.0,
        )
        assert store.value("SELECT (Scale, PositiveOffset, PositiveBucketCounts) FROM otel_metrics_exp_histogram") == (
            2,
            -4,
            [1, 1],
        )
        assert store.value("SELECT ValueAtQuantiles.Value FROM otel_metrics_summary") == [9.0]


def test_checked_logs_and_metrics_are_final() -> None:
    for topic, request in ((log.METRICS, metrics_request()), (log.LOGS, ExportLogsServiceRequest())):
        first = check(topic, request.SerializeToString())
        again = check(topic, first.clean)
        assert (again.clean, again.accepted) == (first.clean, first.accepted)


@pytest.mark.parametrize(
    ("name", "topic", "accepted"),
    [
        ("trace.json", log.TRACES, 1),
        ("logs.json", log.LOGS, 1),
        ("events.json", log.LOGS, 1),
        ("metrics.json", log.METRICS, 4),
    ],
)
def test_the_reference_examples(name: str, topic: str, accepted: int) -> None:
    if not EXAMPLES.is_dir():
        pytest.skip("the reference examples are not beside the repository")
    found = decode(topic, (EXAMPLES / name).read_bytes(), JSON)
    assert (found.accepted, list(found.rejects)) == (accepted, [])


def test_a_span_row_in_full() -> None:
    request = span_request(1, trace_state="a=b", parent_span_id=b"p" * 8)
    span = first_span(request)
    span.status.code, span.status.message = 2, "no"
    span.events.add(name="e", time_unix_nano=START_NS).attributes.add(key="k").value.bool_value = True
    span.links.add(trace_id=b"l" * 16, span_id=b"m" * 8)
    row = one_row(log.TRACES, request.SerializeToString())
    assert row["Timestamp"].to_pydatetime(warn=False).replace(microsecond=0) == datetime(
        2026, 9, 21, 14, 13, 20, tzinfo=UTC
    )
    assert (row["TraceId"], row["ParentSpanId"], row["SpanKind"], row["StatusCode"]) == (
        "74" * 16,
        "70" * 8,
        "Server",
        "Error",
    )
    assert (row["ServiceName"], row["ScopeName"], row["Duration"], row["Marks"]) == ("shop", "lib", 1000, "")
    assert (row["Events.Name"], row["Events.Attributes"], row["Links.TraceId"]) == (
        ["e"],
        [[("k", "true")]],
        ["6c" * 16],
    )
