"""Spans through the OpenTelemetry SDK, exported over OTLP/HTTP: what live mode uses, and what others can copy.
`OtlpExporter` writes the same fields as the SDK's own OTLPSpanExporter, in a third of the time; either can stand behind `SdkTracing`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from instrumented_stack import otlp
from instrumented_stack.otlp import Value
from instrumented_stack.sinks import HttpSink, Sink
from instrumented_stack.telemetry import CLIENT, SCOPE, SERVER, Link, Place, Span, frames

Facts = Mapping[str, Value]
_KINDS = {SERVER: SpanKind.SERVER, CLIENT: SpanKind.CLIENT}
_NUMBERS = {kind: kind.value + 1 for kind in SpanKind}


class _Ids(RandomIdGenerator):
    """Random ids, except that the next root takes the trace id it is told to."""

    def __init__(self) -> None:
        self.next_trace = 0

    def generate_trace_id(self) -> int:
        told, self.next_trace = self.next_trace, 0
        return told or super().generate_trace_id()


class SdkSpan:
    """An SDK span behind our small interface."""

    __slots__ = ("_facts", "_span", "link")

    def __init__(self, span: trace.Span, link: Link) -> None:
        self._span = span
        self._facts: dict[str, Value] = dict(link.common)
        context = span.get_span_context()
        ids = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        self.link = Link(*ids, link.common, link.sampled)

    def set(self, key: str, value: Value) -> None:
        self._facts[key] = value

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        self._span.add_event(name, dict(attributes))

    def fail(self, error: BaseException, *, origin: bool) -> None:
        self._facts["error.type"] = type(error).__name__
        self._span.set_status(Status(StatusCode.ERROR, str(error) if origin else None))
        if origin:
            what = {"exception.type": type(error).__name__, "exception.message": str(error)}
            self._span.add_event("exception", {**what, "exception.stacktrace": frames(error)})

    def end(self) -> None:
        self._span.set_attributes(self._facts)  # at once: each call takes the span's lock
        self._span.end()


class OtlpExporter(SpanExporter):
    """Encodes spans by hand and hands them to a sink; counts what it took and what it refused."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.exported = 0
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            self._sink.write("traces", self.encode(spans))
        except ConnectionError:
            self.refused += len(spans)
            return SpanExportResult.FAILURE
        self.exported += len(spans)
        return SpanExportResult.SUCCESS

    def encode(self, spans: Iterable[ReadableSpan]) -> bytes:
        """An export request, spans grouped by resource."""
        groups: dict[int, tuple[ReadableSpan, list[bytes]]] = {}
        for span in spans:
            known = groups.get(id(span.resource))
            if known is None:
                known = groups[id(span.resource)] = (span, [])
            known[1].append(encode_span(span))
        return b"".join([self._group(first, bodies) for first, bodies in groups.values()])

    @staticmethod
    def _group(first: ReadableSpan, bodies: list[bytes]) -> bytes:
        scope = first.instrumentation_scope
        about = scope.name if scope else "", scope.version or "" if scope else ""
        return otlp.resource_spans(cast(Facts, first.resource.attributes), about, bodies)

    def shutdown(self) -> None:
        self._sink.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def encode_span(span: ReadableSpan) -> bytes:
    """One ended span as field 2 of ScopeSpans; attribute values are scalars, as `SdkSpan` sets them."""
    context, parent = span.context, span.parent
    above, remote = b"", 0x100
    if parent is not None:
        above, remote = parent.span_id.to_bytes(8, "big"), 0x300 if parent.is_remote else 0x100
    ids = otlp.identity(context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), above)
    rest = otlp.pairs(otlp.SPAN_ATTRIBUTE, cast(Facts, span.attributes))
    for event in span.events:
        rest += otlp.event(event.timestamp, event.name, cast(Facts, event.attributes))
    rest += otlp.status(span.status.status_code is StatusCode.ERROR, span.status.description or "")
    rest += otlp.flags(remote)
    times = span.start_time or 0, span.end_time or 0
    return otlp.span(ids, span.name, _NUMBERS[span.kind], times, rest)


class SdkTracing:
    """One provider per place, one batch processor for all of them."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor
        self._ids = _Ids()
        self._tracers: dict[Place, trace.Tracer] = {}

    def start(self, place: Place, name: str, kind: int, link: Link) -> Span:
        context = None
        if link.span_id:
            flags = TraceFlags(TraceFlags.SAMPLED if link.sampled else TraceFlags.DEFAULT)
            ids = int.from_bytes(link.trace_id, "big"), int.from_bytes(link.span_id, "big")
            remote = SpanContext(*ids, is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(NonRecordingSpan(remote))
        else:
            context = trace.set_span_in_context(trace.INVALID_SPAN)
            self._ids.next_trace = int.from_bytes(link.trace_id, "big")
        kind_of = _KINDS.get(kind, SpanKind.INTERNAL)
        return SdkSpan(self._tracer(place).start_span(name, context, kind_of), link)

    def fresh(self, link: Link) -> Link:
        made = hashlib.blake2b(link.trace_id + link.span_id, digest_size=16).digest()
        return Link(made, b"", link.common, link.sampled)

    def _tracer(self, place: Place) -> trace.Tracer:
        if place not in self._tracers:
            resource = Resource(place.attributes())
            provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
            provider.add_span_processor(self._processor)
            self._tracers[place] = provider.get_tracer(*SCOPE)
        return self._tracers[place]

    def close(self) -> None:
        """Export what is held; waits for it."""
        self._processor.force_flush(30_000)
        self._processor.shutdown()


def open_tracing(url: str) -> tuple[SdkTracing, OtlpExporter]:
    """Tracing that exports to `<url>/v1/traces`, and the counter of what arrived."""
    exporter = OtlpExporter(HttpSink(url, patience_s=30.0))
    processor = BatchSpanProcessor(
        exporter, max_queue_size=100_000, max_export_batch_size=2_000, schedule_delay_millis=500
    )
    return SdkTracing(processor), exporter
