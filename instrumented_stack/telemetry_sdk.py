"""Spans through the OpenTelemetry SDK, exported over OTLP/HTTP: what live mode uses, and what others can copy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from instrumented_stack.otlp import Value
from instrumented_stack.telemetry import CLIENT, SCOPE, SERVER, Link, Place, Span, frames

_KINDS = {SERVER: SpanKind.SERVER, CLIENT: SpanKind.CLIENT}


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


class Counting(SpanExporter):
    """Counts what was handed over and what was refused, around another exporter."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.exported = 0
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.refused += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


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


def open_tracing(url: str) -> tuple[SdkTracing, Counting]:
    """Tracing that exports to `<url>/v1/traces`, and the counter of what arrived."""
    exporter = Counting(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=10))
    processor = BatchSpanProcessor(
        exporter, max_queue_size=50_000, max_export_batch_size=2_000, schedule_delay_millis=500
    )
    return SdkTracing(processor), exporter
