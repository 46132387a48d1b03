"""`stagescope ingest`: real files of other people's, twice; and everything a file should not be."""

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.files import FileReport, ingest_paths
from ingest.settings import Settings
from ingest.store import Store

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TABLES = ("otel_traces", "otel_logs", "otel_metrics_gauge", "otel_metrics_sum", "otel_metrics_histogram", "otel_metrics_exp_histogram")  # fmt: skip
SPANS = {
    "any-agent": 50, "jaeger-ui": 70, "langfuse-export": 76, "otlp": 7, "otlp-json": 28, "vllm": 159, "zipkin": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("files"))) as found:
        yield found


@pytest.fixture
def store(opened: Store) -> Store:
    for table in (*TABLES, "ingest_rejects", "ingest_ledger"):
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def _counts(store: Store) -> dict[str, int]:
    return {name: store.value(f"SELECT count() FROM {name}") for name in (*TABLES, "ingest_rejects")}


def _ingest(store: Store, path: Path, **settings: int) -> FileReport:
    (report,) = ingest_paths([str(path)], store, Settings(**settings))
    return report


def _span(number: int = 1, **more: object) -> dict[str, object]:
    start = 1_700_000_000_000_000_000 + number
    return {
        "traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": f"s{number}",
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 5), **more,
    }  # fmt: skip


def _otlp(*spans: dict[str, object]) -> dict[str, object]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}


def test_every_golden_file_twice(store: Store) -> None:
    folders = [str(GOLDEN / name) for name in SPANS]
    first = {report.path: report for report in ingest_paths(folders, store)}
    after = _counts(store)
    assert after["otel_logs"] == 2
    assert min(after[name] for name in TABLES) >= 1
    again = {report.path: report for report in ingest_paths(folders, store)}
    assert again == first
    assert _counts(store) == after
    for folder, spans in SPANS.items():
        found = [report for path, report in first.items() if path.startswith(f"{GOLDEN}/{folder}/")]
        stored = sum(report.stored for report in found)
        assert stored == spans + {"otlp": 6}.get(folder, 0), folder
        assert not [report.error for report in found if report.error]
    refused = {Path(path).name: dict(report.rejected) for path, report in first.items() if report.rejected}
    assert refused == {"testTrace.json": {"bad-trace-id": 11}}, "span-1 of trace-123 is no id that OpenTelemetry knows"


def test_langfuse_keeps_what_the_instrumentation_sent(store: Store) -> None:
    path = GOLDEN / "langfuse-export" / "vercel-aisdk-2025-11-17.trace.json"
    sent = {
        one["id"]: json.loads(one["metadata"])["attributes"] for one in json.loads(path.read_text())["observations"]
    }
    assert _ingest(store, path).stored == 3
    rows = store.read("SELECT SpanId, SpanAttributes AS a, toString(Timestamp) AS at FROM otel_traces").set_index(
        "SpanId"
    )
    for span, attributes in sent.items():
        assert attributes.items() <= rows.a[span].items()
    assert rows["at"]["91a17a2274bfd23f"] == "2025-11-17 14:55:18.787000000"
    assert store.value("SELECT ParentSpanId FROM otel_traces WHERE SpanId = '91a17a2274bfd23f'") == "1dc6768109615657"


def test_decimal_ids_and_nanoseconds_are_exact(store: Store) -> None:
    _ingest(store, GOLDEN / "any-agent" / "AGNO_trace.json")
    found = store.read(
        "SELECT TraceId, ParentSpanId, toUnixTimestamp64Nano(Timestamp) AS at FROM otel_traces WHERE SpanId = {id:String}",
        id=f"{1807164324042463798:016x}",
    ).iloc[0]
    assert found.TraceId == f"{39712373237291850001929057769826244787:032x}"
    assert found.ParentSpanId == f"{2795294992452118289:016x}"
    assert found["at"] == 1758026594777382000


def test_zipkin_halves_of_one_id_become_parent_and_child(store: Store) -> None:
    _ingest(store, GOLDEN / "zipkin" / "skew.json")
    rows = store.read("SELECT SpanId, ParentSpanId, SpanKind, ServiceName, SpanName FROM otel_traces").set_index(
        "SpanKind"
    )
    client = rows.loc["Client"]
    assert client.SpanId == "74280ae0c10d8062"
    server = rows[(rows.index == "Server") & (rows.ServiceName == "serviceb")].iloc[0]
    assert server.ParentSpanId == client.SpanId
    assert server.SpanId != client.SpanId
    assert rows.loc["Unspecified"].ParentSpanId == server.SpanId, "work inside the server is the server's child"
    assert rows.SpanId.is_unique


def test_zipkin_ids_stay_unique_in_a_large_trace(store: Store) -> None:
    _ingest(store, GOLDEN / "zipkin" / "smartthings-oauth-authorization.json")
    rows = store.read("SELECT TraceId, SpanId, ParentSpanId, StatusCode, Duration FROM otel_traces")
    assert len(rows) == 175
    assert not rows.duplicated(["TraceId", "SpanId"]).any()
    assert (rows.StatusCode == "Error").sum() == 2
    assert (rows.ParentSpanId == rows.SpanId).sum() == 0


def test_zipkin_without_times(store: Store, tmp_path: Path) -> None:
    note = {"timestamp": 1_700_000_000_000_123, "value": "cs"}
    spans = [
        {
            "traceId": "ab",
            "id": "1",
            "name": "noted",
            "annotations": [note, {"timestamp": 1_700_000_000_000_200, "value": "cr"}],
        },
        {"traceId": "ab", "id": "2", "parentId": "1", "name": "nothing"},
        {"traceId": "ab", "id": "x", "name": "no id", "timestamp": 1},
    ]
    path = tmp_path / "z.json"
    path.write_text(json.dumps(spans))
    report = _ingest(store, path)
    assert (report.stored, dict(report.rejected)) == (1, {"bad-span-id": 1, "no-time": 1})
    row = store.read("SELECT Duration, Events.Name AS names, TraceId FROM otel_traces").iloc[0]
    assert (row.Duration, list(row.names), row.TraceId) == (77_000, ["cs", "cr"], "ab".zfill(32))


def test_jaeger_references_process_and_errors(store: Store, tmp_path: Path) -> None:
    span = {
        "traceID": "ab", "spanID": "2", "operationName": "call", "startTime": 1_700_000_000_000_001, "duration": 7, "processID": "p1",
        "references": [
            {"refType": "FOLLOWS_FROM", "traceID": "ab", "spanID": "3"}, {"refType": "CHILD_OF", "traceID": "ab", "spanID": "1"},
        ],
        "tags": [
            {"key": "error", "type": "bool", "value": True}, {"key": "n", "type": "int64", "value": "9007199254740993"},
            {"key": "span.kind", "value": "client"},
        ],
        "logs": [{"timestamp": 1_700_000_000_000_003, "fields": [
            {"key": "event", "value": "error"}, {"key": "error.kind", "value": "ValueError"}, {"key": "message", "value": "no"}]}],
    }  # fmt: skip
    path = tmp_path / "j.json"
    path.write_text(
        json.dumps(
            {
                "data": [
                    {
                        "traceID": "ab",
                        "spans": [span],
                        "processes": {"p1": {"serviceName": "shop", "tags": [{"key": "host.name", "value": "n1"}]}},
                    }
                ]
            }
        )
    )
    assert _ingest(store, path).stored == 1
    row = store.read(
        "SELECT *, Links.SpanId AS links, Events.Name AS names, Events.Attributes AS details, toUnixTimestamp64Nano(Timestamp) AS at FROM otel_traces"
    ).iloc[0]
    assert (row.ParentSpanId, list(row.links)) == ("1".zfill(16), ["3".zfill(16)])
    assert (row.ServiceName, row.ResourceAttributes["host.name"], row.SpanKind, row.StatusCode) == (
        "shop",
        "n1",
        "Client",
        "Error",
    )
    assert (row.SpanAttributes["n"], row.Duration, row["at"]) == ("9007199254740993", 7000, 1_700_000_000_000_001_000)
    assert (list(row.names), row.details[0]["exception.type"]) == (["exception"], "ValueError")


def test_protobuf_gzip_and_standard_input(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name, span.start_time_unix_nano, span.end_time_unix_nano = (
        b"\x0a" * 16,
        b"\x0b" * 8,
        "pb",
        10**18,
        10**18 + 1,
    )
    (tmp_path / "a.pb").write_bytes(request.SerializeToString())
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(_otlp(_span(2))).encode()))
    assert (_ingest(store, tmp_path / "a.pb").format, _ingest(store, tmp_path / "b.json.gz").stored) == (
        "otlp-protobuf",
        1,
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(_otlp(_span(3))).encode())))
    (report,) = ingest_paths(["-"], store)
    assert (report.path, report.stored) == ("-", 1)
    assert set(store.read("SELECT SpanName FROM otel_traces").SpanName) == {"pb", "s2", "s3"}


def test_one_broken_line_costs_itself(store: Store, tmp_path: Path) -> None:
    lines = [json.dumps(_otlp(_span(number))) for number in range(1, 6)]
    lines[0], lines[2] = lines[0][:40], '{"what": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n\n")
    report = _ingest(store, tmp_path / "a.jsonl")
    assert (report.stored, dict(report.rejected)) == (3, {"bad-json": 1, "unknown-format": 1})


def test_a_line_past_the_limit_is_skipped_in_little_memory(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as out:
        out.write(json.dumps(_otlp(_span(1))).encode() + b'\n{"resourceSpans": "')
        for _ in range(64):
            out.write(b"x" * (1 << 20))
        out.write(b'"}\n' + json.dumps(_otlp(_span(2))).encode())
    tracemalloc.start()
    report = _ingest(store, path, max_inflated_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.stored, dict(report.rejected)) == (2, {"line-too-long": 1})
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("binary", bytes(range(256)) * 20, "unknown-format"),
        ("png.json", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "unknown-format"),
        ("empty", b"", "empty"),
        ("blank", b" \n\n ", "empty"),
        ("truncated", json.dumps(_otlp(_span(1)), indent=1).encode()[:-40], "bad-json"),
        ("other", b'{"hello": "world"}', "unknown-format"),
        ("number", b"17", "unknown-format"),
        ("list", b"[]", "unknown-format"),
        ("deep", b'{"resourceSpans": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad-json"),
        ("large", b'{\n"resourceSpans": "' + b"x" * (2 << 20) + b'"}', "too-large"),
        ("bomb.gz", gzip.compress(b"\n" * (64 << 20)), "gzip-bomb"),
        ("cut.gz", gzip.compress(json.dumps(_otlp(_span(1))).encode() * 50)[:-20], "bad-gzip"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_clear_line(
    store: Store, tmp_path: Path, name: str, body: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(body)
    report = _ingest(store, tmp_path / name, max_inflated_bytes=1 << 20)
    assert report.rejected.get(reason) == 1, report
    assert report.stored == 0
    assert report.error
    assert "\n" not in report.error


def test_odd_text_is_mended_and_the_rest_kept(store: Store, tmp_path: Path) -> None:
    attributes = [{"key": "a", "value": {"stringValue": "SURROGATE"}}, {"key": "b", "value": {"stringValue": "x\x00y"}}]
    text = json.dumps(_otlp(_span(1, attributes=attributes), _span(2))).replace("SURROGATE", "\\ud800!")
    (tmp_path / "odd.json").write_bytes(text.encode().replace(b'"s2"', b'"s\xff2"'))
    assert _ingest(store, tmp_path / "odd.json").stored == 2
    rows = store.read("SELECT SpanName, SpanAttributes AS a FROM otel_traces ORDER BY SpanName")
    assert list(rows.SpanName) == ["s1", "s�2"]
    assert rows.a[0]["a"] == "�!"


def test_bad_spans_are_counted_and_their_neighbours_kept(store: Store, tmp_path: Path) -> None:
    bad = [
        _span(1, traceId="abc"),
        _span(2, startTimeUnixNano="253402300799000000000", endTimeUnixNano="253402300799000000001"),
        _span(3, name=""),
    ]
    (tmp_path / "bad.json").write_text(json.dumps(_otlp(*bad, _span(4, endTimeUnixNano="1700000000000000000"))))
    report = _ingest(store, tmp_path / "bad.json")
    assert report.stored == 2
    assert sum(report.rejected.values()) == 2
    assert store.value("SELECT Duration FROM otel_traces WHERE SpanName = 's4'") == 0


def test_missing_file_is_a_report_and_the_next_file_is_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "ok.json").write_text("\n\n" + json.dumps(_otlp(_span(1))))
    first, second = ingest_paths([str(tmp_path / "none.json"), str(tmp_path / "folder")], store)
    assert "No such file" in first.error
    assert second.stored == 1
