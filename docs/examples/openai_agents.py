"""OpenAI Agents SDK: a trace processor that turns its own spans into OpenTelemetry spans with stages and work.
Run: python docs/examples/openai_agents.py http://127.0.0.1:4318   (needs: pip install openai-agents; no API key, no network)

The demonstration runs the SDK's tracing by hand where your agent would run; `add_trace_processor` is all that you need.
"""

from __future__ import annotations

import sys
from typing import Any

from agents import add_trace_processor, function_span, generation_span, trace
from agents.tracing import TracingProcessor, set_trace_processors
from opentelemetry import trace as otel
from opentelemetry.trace import Status, StatusCode
from stages import start_telemetry, used

KINDS = {
    "agent": "agent",
    "generation": "generate",
    "response": "generate",
    "function": "fetch",
    "guardrail": "check",
    "handoff": "decide",
}


class ToOpenTelemetry(TracingProcessor):
    """One OpenTelemetry span for each span of the SDK, below one for each of its traces."""

    def __init__(self) -> None:
        self._open: dict[str, otel.Span] = {}

    def on_trace_start(self, trace: Any) -> None:
        span = otel.get_tracer("openai-agents").start_span(trace.name)
        span.set_attribute("stagescope.kind", "agent")
        self._open[trace.trace_id] = span

    def on_trace_end(self, trace: Any) -> None:
        self._open.pop(trace.trace_id).end()

    def on_span_start(self, span: Any) -> None:
        above = self._open.get(span.parent_id or "") or self._open[span.trace_id]
        data = span.span_data
        name = getattr(data, "name", None) or data.type
        made = otel.get_tracer("openai-agents").start_span(name, otel.set_span_in_context(above))
        made.set_attribute("stagescope.stage", name)
        made.set_attribute("stagescope.kind", KINDS.get(data.type, "other"))
        self._open[span.span_id] = made

    def on_span_end(self, span: Any) -> None:
        made, data = self._open.pop(span.span_id), span.span_data
        if data.type == "function":
            made.set_attribute("gen_ai.tool.name", data.name)
            made.set_attribute("stagescope.work.bytes", len(str(data.output or "")))
        if usage := getattr(data, "usage", None):
            used(
                made,
                getattr(data, "model", None) or "unknown",
                usage.get("input_tokens", 0),
                usage.get("output_tokens", 0),
            )
        if span.error:
            made.set_attribute("error.type", "AgentError")
            made.set_status(Status(StatusCode.ERROR, span.error["message"]))
        made.end()

    def shutdown(self) -> None:
        return

    def force_flush(self) -> None:
        return


def main() -> int:
    endpoint = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4318"
    provider = start_telemetry("openai-agents", "1.0.0", endpoint)
    set_trace_processors([])  # this example sends nothing to the vendor; leave the line out to keep both
    add_trace_processor(ToOpenTelemetry())
    for _ in range(5):
        with trace("weekly report"):
            with function_span("query_table", input="revenue", output="42 rows"):
                pass
            with generation_span(model="small-model", usage={"input_tokens": 800, "output_tokens": 40}):
                pass
    provider.shutdown()
    print(f"5 traces sent to {endpoint}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
