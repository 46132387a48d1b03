"""Requests for tests: plain ones, and the odd ones that every door must survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

START_NS = 1_790_000_000_000_000_000


def span_request(spans: int = 1, **changes: Any) -> ExportTraceServiceRequest:
    """`spans` good spans of one trace; `changes` are set on the first of them."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_spans.add()
    scope.scope.name = "lib"
    for number in range(1, spans + 1):
        scope.spans.add(
            trace_id=b"t" * 16,
            span_id=number.to_bytes(8, "big"),
            name=f"step {number}",
            kind=2,
            start_time_unix_nano=START_NS + number,
            end_time_unix_nano=START_NS + number + 1000,
        )
    for name, value in changes.items():
        setattr(scope.spans[0], name, value)
    return request


def first_span(request: ExportTraceServiceRequest) -> Any:
    return request.resource_spans[0].scope_spans[0].spans[0]


def invalid_utf8() -> bytes:
    return span_request(2, name="step X").SerializeToString().replace(b"step X", b"step \xff")


def nested(depth: int) -> bytes:
    """An attribute of arrays in arrays."""
    request = span_request(1)
    value = first_span(request).attributes.add(key="deep").value
    for _ in range(depth):
        value = value.array_value.values.add()
    value.int_value = 1
    return request.SerializeToString()


# name → (bytes, spans kept, reasons of rejects); every second span of two is good
ODD: dict[str, tuple[Callable[[], bytes], int, dict[str, int]]] = {
    "good": (lambda: span_request(2).SerializeToString(), 2, {}),
    "invalid UTF-8": (invalid_utf8, 2, {}),
    "U+0000": (lambda: span_request(2, name="a\x00b").SerializeToString(), 2, {}),
    "short trace id": (lambda: span_request(2, trace_id=b"abc").SerializeToString(), 1, {"bad-trace-id": 1}),
    "long trace id": (lambda: span_request(2, trace_id=b"a" * 17).SerializeToString(), 1, {"bad-trace-id": 1}),
    "zero trace id": (lambda: span_request(2, trace_id=bytes(16)).SerializeToString(), 1, {"bad-trace-id": 1}),
    "short span id": (lambda: span_request(2, span_id=b"a").SerializeToString(), 1, {"bad-span-id": 1}),
    "no name": (lambda: span_request(2, name="").SerializeToString(), 2, {}),
    "negative duration": (lambda: span_request(2, end_time_unix_nano=5).SerializeToString(), 2, {}),
    "year 9999": (lambda: span_request(2, start_time_unix_nano=2**64 - 1).SerializeToString(), 1, {"time-out-of-range": 1}),
    "end in 2500": (lambda: span_request(2, end_time_unix_nano=2**64 - 1).SerializeToString(), 1, {"time-out-of-range": 1}),
    "no time": (
        lambda: span_request(2, start_time_unix_nano=0, end_time_unix_nano=0).SerializeToString(),
        1,
        {"no-time": 1},
    ),
}  # fmt: skip
UNREADABLE: dict[str, bytes] = {
    "truncated": span_request(3).SerializeToString()[:-7],
    "binary": bytes(range(256)) * 8,
    "text": b"hello, this is not protobuf",
    "nested too deep": nested(200),
}
