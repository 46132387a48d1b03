"""Forty lines that make any Python agent readable stage by stage: OpenTelemetry spans with the work that each stage did.

Copy this file into your project. It needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, nothing of Stagescope.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import baggage, context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

WHO = ("user.id", "user.tier", "session.id", "cloud.region", "device.type")


class WhoAsked(SpanProcessor):
    """Copies the dimensions of the request from baggage onto every span, so that each stage can be split by them."""

    def on_start(self, span: Span, parent_context: context.Context | None = None) -> None:
        for key in WHO:
            value = baggage.get_baggage(key, parent_context)
            if isinstance(value, str):
                span.set_attribute(key, value)

    def on_end(self, span: ReadableSpan) -> None:
        return


def start_telemetry(service: str, version: str, endpoint: str = "http://127.0.0.1:4318") -> TracerProvider:
    """Call once at start; `provider.shutdown()` at the end sends what is held."""
    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.version": version}))
    provider.add_span_processor(WhoAsked())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)
    return provider


@contextmanager
def asked_by(**who: str) -> Iterator[None]:
    """`with asked_by(user_id="u1", user_tier="pro", ...)`: everything inside belongs to this caller, in other services too
    when baggage is propagated (it is, by OpenTelemetry's default propagators)."""
    now = context.get_current()
    for key, value in who.items():
        now = baggage.set_baggage(key.replace("_", ".", 1), value, now)
    token = context.attach(now)
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def stage(name: str, kind: str, **work: str | int | float | bool) -> Iterator[trace.Span]:
    """One stage. `kind`: parse decide fetch generate aggregate check render embed rerank agent wait other.
    `work` is what justifies its time, e.g. items=12, rows=40, bytes=2300, wait_ms=800; add more on the span as you learn it."""
    with trace.get_tracer("agent").start_as_current_span(name) as span:
        span.set_attribute("stagescope.stage", name)
        span.set_attribute("stagescope.kind", kind)
        for key, value in work.items():
            span.set_attribute(f"stagescope.{'work.' if key in ('items', 'rows', 'bytes') else ''}{key}", value)
        yield span


def used(span: trace.Span, model: str, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
    """Say what a model call consumed, in the names of the GenAI semantic conventions."""
    span.set_attribute("gen_ai.operation.name", "chat")
    span.set_attribute("gen_ai.request.model", model)
    span.set_attribute("gen_ai.usage.input_tokens", input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
    if cached_tokens:
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached_tokens)
