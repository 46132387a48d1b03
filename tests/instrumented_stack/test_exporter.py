"""The hand-written exporter says exactly what the SDK's own says, and nothing is lost silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from instrumented_stack.telemetry import CLIENT, INTERNAL, SERVER, Link, Place
from instrumented_stack.telemetry_sdk import OtlpExporter, SdkTracing

PLACES = (Place("gateway", "g-1", "1.4.0", "zone-a"), Place("edge-worker", "edge-1", "1.4.0", "zone-b"))


@dataclass
class Kept:
    """A sink that keeps bodies, or refuses them."""

    refuses: bool = False
    bodies: list[bytes] = field(default_factory=list)

    def write(self, signal: str, body: bytes) -> None:
        if self.refuses:
            raise ConnectionError("nobody is there")
        self.bodies.append(body)

    def close(self) -> None:
        return


@pytest.fixture
def spans() -> Sequence[ReadableSpan]:
    """A root, a remote child with all kinds of values, a failure where it arose and one passed on, an unsampled trace."""
    memory = InMemorySpanExporter()
    tracing = SdkTracing(SimpleSpanProcessor(memory))
    common = {"user.id": "user-1", "cloud.region": "eu-west"}
    root = tracing.start(PLACES[0], "POST /v1/answers", SERVER, Link(b"t" * 16, b"", common))
    child = tracing.start(PLACES[1], "tool_select", CLIENT, root.link)
    for key, value in {
        "text": "Grüße 🙂",
        "count": -(2**40),
        "share": 0.25,
        "flag": True,
        "none": 0,
        "empty": "",
    }.items():
        child.set(key, value)
    child.event("retry", {"stagescope.attempt": 2, "reason": "no JSON"})
    try:
        raise ValueError("nothing fits")
    except ValueError as error:
        child.fail(error, origin=True)
        root.fail(error, origin=False)
    quiet = tracing.start(PLACES[0], "not sampled", INTERNAL, Link(b"q" * 16, b"p" * 8, common, False))
    for span in (quiet, child, root):
        span.end()
    return memory.get_finished_spans()


def test_it_writes_what_the_sdk_writes(spans: Sequence[ReadableSpan]) -> None:
    assert len(spans) == 2
    ours = ExportTraceServiceRequest.FromString(OtlpExporter(Kept()).encode(spans))
    theirs = encode_spans(spans)
    for resource in theirs.resource_spans:
        for span in resource.scope_spans[0].spans:
            if span.status.code == 0:
                span.ClearField("status")
    assert ours == theirs


def test_what_is_refused_is_counted(spans: Sequence[ReadableSpan]) -> None:
    sink = Kept()
    exporter = OtlpExporter(sink)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    sink.refuses = True
    assert exporter.export(spans) is SpanExportResult.FAILURE
    assert (exporter.exported, exporter.refused, len(sink.bodies)) == (2, 2, 1)


def test_half_an_emoji_costs_a_character_and_not_the_batch() -> None:
    sink = Kept()
    exporter = OtlpExporter(sink)
    tracing = SdkTracing(SimpleSpanProcessor(exporter))
    span = tracing.start(PLACES[0], "n\ud83d", SERVER, Link(b"t" * 16, b"", {"session.id": "s\udfff"}))
    span.fail(ValueError("half \ud83d an emoji"), origin=True)
    span.end()
    assert exporter.exported == 1
    (resource,) = ExportTraceServiceRequest.FromString(sink.bodies[0]).resource_spans
    assert resource.scope_spans[0].spans[0].status.message == "half ? an emoji"
