"""The doors: what a client is told, and what really is in the log, over real sockets."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Iterator

import grpc
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ingest import log
from ingest.errors import BadSetting
from ingest.meter import Meter
from ingest.otlp import JSON, PROTOBUF
from ingest.receiver import Receiver
from ingest.settings import Settings
from tests.ingest.otlp_door import Door, ListSink
from tests.ingest.otlp_samples import ODD, UNREADABLE, first_span, span_request

SMALL = Settings(
    otlp_http_port=0,
    otlp_grpc_port=0,
    max_body_bytes=200_000,
    max_inflated_bytes=1_000_000,
    max_working_bytes=3_000_000,
)


@pytest.fixture
def door() -> Iterator[Door]:
    sink = ListSink()
    with Receiver(SMALL, sink, Meter()) as receiver:
        opened = Door(receiver, sink)
        yield opened
        opened.close()


def test_protobuf_is_taken_as_it_is(door: Door) -> None:
    body = span_request(3).SerializeToString()
    answer = door.post(body)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", PROTOBUF)
    assert door.sink.values == [(log.TRACES, body)]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/logs"])
def test_empty_request_is_a_success_that_stores_nothing(door: Door, path: str) -> None:
    assert door.post(b"", path=path).status_code == 200
    assert door.post(b"{}", JSON, path=path).json() == {}
    assert door.sink.values == []


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_over_http(door: Door, name: str) -> None:
    make, kept, reasons = ODD[name]
    answer = door.post(make())
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == sum(reasons.values())
    assert all(reason in partial.error_message for reason in reasons)
    assert door.sink.spans() == kept


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_over_grpc(door: Door, name: str) -> None:
    make, kept, reasons = ODD[name]
    partial = ExportTraceServiceResponse.FromString(door.export(make(), timeout=20)).partial_success
    assert partial.rejected_spans == sum(reasons.values())
    assert all(reason in partial.error_message for reason in reasons)
    assert door.sink.spans() == kept


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_bodies_are_refused_for_good(door: Door, name: str) -> None:
    answer = door.post(UNREADABLE[name])
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROTOBUF)
    assert Status.FromString(answer.content).message
    with pytest.raises(grpc.RpcError) as caught:
        door.export(UNREADABLE[name], timeout=20)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert door.sink.values == []
    assert door.post(span_request(1).SerializeToString()).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'"x"', b"\xff\xfe", b'{"resourceSpans":5}', b'{"foo":1}', b"[" * 50_000]
)
def test_unreadable_json_is_refused_for_good(door: Door, body: bytes) -> None:
    answer = door.post(body, JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON)
    assert answer.json()["message"]


def test_json_lone_surrogate_and_rejects(door: Door) -> None:
    span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "2", "startTimeUnixNano": "5", "endTimeUnixNano": 7}
    odd = [
        {**span, "name": "\ud800x"},
        {**span, "traceId": "12"},
        {**span, "startTimeUnixNano": "253402300799000000000"},
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": odd}]}]}).encode()
    partial = door.post(body, JSON).json()["partialSuccess"]
    assert partial["rejectedSpans"] == "2"
    assert "bad-trace-id" in partial["errorMessage"]
    assert "time-out-of-range" in partial["errorMessage"]
    assert first_span(ExportTraceServiceRequest.FromString(door.sink.values[0][1])).name == "\ufffdx"


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("identity", bytes),
    ],
)
def test_compressed_bodies(door: Door, encoding: str, pack: object) -> None:
    body = span_request(3).SerializeToString()
    assert callable(pack)
    assert door.post(pack(body), content_encoding=encoding).status_code == 200
    assert door.sink.values == [(log.TRACES, body)]
    if encoding != "identity":
        assert door.post(body, content_encoding=encoding).status_code == 400
        assert door.post(pack(body)[:-9], content_encoding=encoding).status_code == 400
        bomb = door.post(pack(bytes(40_000_000)), content_encoding=encoding)
        assert (bomb.status_code, "larger than 1000000" in bomb.text) == (413, True)


def test_two_gzip_members_are_one_body(door: Door) -> None:
    one, two = span_request(1).SerializeToString(), span_request(2).SerializeToString()
    assert door.post(gzip.compress(one) + gzip.compress(two), content_encoding="gzip").status_code == 200
    assert door.sink.spans() == 3


def test_gzip_over_grpc_and_its_bomb(door: Door) -> None:
    door.export(span_request(3).SerializeToString(), timeout=20, compression=grpc.Compression.Gzip)
    assert door.sink.spans() == 3
    with pytest.raises(grpc.RpcError) as caught:
        door.export(bytes(40_000_000), timeout=20, compression=grpc.Compression.Gzip)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_too_large_as_sent(door: Door) -> None:
    assert door.post(bytes(200_001)).status_code == 413
    chunks = (bytes(50_000) for _ in range(10))
    streamed = door.http.post("/v1/traces", content=chunks, headers={"content-type": PROTOBUF})
    assert streamed.status_code == 413
    assert door.sink.values == []


@pytest.mark.parametrize(
    ("kind", "encoding"), [("text/plain", ""), ("", ""), (PROTOBUF, "br"), (PROTOBUF, "gzip, gzip")]
)
def test_what_we_do_not_read(door: Door, kind: str, encoding: str) -> None:
    assert door.post(span_request(1).SerializeToString(), kind, content_encoding=encoding).status_code == 415


def test_methods_paths_and_origins(door: Door) -> None:
    assert door.http.get("/v1/traces").status_code == 405
    assert door.http.post("/v1/other").status_code == 404
    asked = door.http.options(
        "/v1/traces", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
    )
    assert "access-control-allow-origin" not in asked.headers


def test_log_away_asks_to_come_again(door: Door) -> None:
    door.sink.away.set()
    answer = door.post(span_request(1).SerializeToString())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "4")
    assert Status.FromString(answer.content).message == "the log is away"
    with pytest.raises(grpc.RpcError) as caught:
        door.export(span_request(1).SerializeToString(), timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    found = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    retry = RetryInfo()
    assert Status.FromString(found).details[0].Unpack(retry)
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == (3, 500_000_000)


def test_overload_turns_away_and_recovers(door: Door) -> None:
    body = span_request(1).SerializeToString() + bytes([0xA2, 0x38]) + _length(150_000) + bytes(150_000)
    door.sink.hold.clear()
    waiting = [threading.Thread(target=door.post, args=(body,)) for _ in range(20)]
    for each in waiting:
        each.start()
    for _ in range(19):
        assert door.sink.entered.acquire(timeout=20)
    answers = [door.post(body) for _ in range(3)]
    assert 429 in {answer.status_code for answer in answers}
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
    door.sink.hold.set()
    for each in waiting:
        each.join(20)
    assert door.post(body).status_code == 200


def _length(size: int) -> bytes:
    parts = bytearray()
    while size > 127:
        parts.append(size & 127 | 128)
        size >>= 7
    parts.append(size)
    return bytes(parts)


def test_health_and_metrics(door: Door) -> None:
    door.post(span_request(2, trace_id=b"x").SerializeToString())
    door.post(b"\xff")
    assert door.http.get("/healthz").text == "ok\n"
    text = door.http.get("/metrics").text
    for words in ("bad-trace-id", "bad-protobuf", "accepted"):
        assert words in text


def test_a_taken_port_is_named(door: Door) -> None:
    taken = int(door.http.base_url.port or 0)
    with pytest.raises(BadSetting, match=str(taken)):
        Receiver(Settings(otlp_http_port=taken, otlp_grpc_port=0), ListSink(), Meter()).start()
