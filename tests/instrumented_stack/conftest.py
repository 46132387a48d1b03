"""Runs a scenario text on virtual time into memory and reads the OTLP back with the official classes; or plays a scene on live services."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from instrumented_stack.live import LiveStack
from instrumented_stack.read import read
from instrumented_stack.stack import Outcome, Overrides, run
from instrumented_stack.telemetry_sdk import SdkTracing

START = datetime(2026, 11, 23, tzinfo=UTC)
# A stack whose engines answer at once, so that live tests take no time.
FAST = """
seconds = 60
[traffic]
tasks = { calculation = 1 }
[stack]
hosts = { edge = 1, middle = 1, core = 1 }
lock_timeout_s = 10
[stack.engine.edge]
gpu = "NVIDIA H100"
model = "SmolLM2-135M"
[stack.engine.middle]
gpu = "NVIDIA H100"
model = "SmolLM2-135M"
[stack.engine.core]
gpu = "NVIDIA H100"
model = "SmolLM2-135M"
max_num_seqs = 256
"""


@dataclass
class Memory:
    """A sink that keeps what it is given."""

    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def write(self, signal: str, body: bytes) -> None:
        self.bodies.append((signal, body))

    def close(self) -> None:
        return


@dataclass(frozen=True)
class Seen:
    """One span as read back."""

    name: str
    service: str
    trace: str
    span: str
    parent: str
    kind: int
    start_ms: float
    end_ms: float
    failed: bool
    message: str
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class Ran:
    """A finished run."""

    outcome: Outcome
    spans: Sequence[Seen]
    points: Sequence[tuple[str, str, dict[str, str], float, float]]
    bodies: Sequence[tuple[str, bytes]]

    def of(self, stage: str, after_s: float = 0.0, before_s: float = 1e9) -> list[Seen]:
        """Spans of a stage that start between two seconds of the run, in order."""
        zero = START.timestamp() * 1e3
        found = [s for s in self.spans if s.attributes.get("stagescope.stage") == stage]
        return sorted((s for s in found if after_s <= (s.start_ms - zero) / 1e3 < before_s), key=lambda s: s.start_ms)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def spans_of(bodies: Sequence[tuple[str, bytes]]) -> list[Seen]:
    out = []
    for signal, body in bodies:
        if signal != "traces":
            continue
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = _attributes(resource.resource.attributes)
            for item in resource.scope_spans[0].spans:
                out.append(
                    Seen(
                        item.name,
                        about["service.name"],
                        item.trace_id.hex(),
                        item.span_id.hex(),
                        item.parent_span_id.hex(),
                        item.kind,
                        item.start_time_unix_nano / 1e6,
                        item.end_time_unix_nano / 1e6,
                        item.status.code == 2,
                        item.status.message,
                        {**about, **_attributes(item.attributes)},
                        tuple((event.name, _attributes(event.attributes)) for event in item.events),
                    )
                )
    return out


def points_of(bodies: Sequence[tuple[str, bytes]]) -> list[tuple[str, str, dict[str, str], float, float]]:
    """(metric, host, labels, seconds since START, value)."""
    out = []
    for signal, body in bodies:
        if signal != "metrics":
            continue
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            host = _attributes(resource.resource.attributes)["host.name"]
            for metric in resource.scope_metrics[0].metrics:
                data = metric.gauge if metric.HasField("gauge") else metric.sum
                for point in data.data_points:
                    when = point.time_unix_nano / 1e9 - START.timestamp()
                    out.append((metric.name, host, _attributes(point.attributes), when, point.as_double))
    return out


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Ran]:
    """`play(text)` runs a scenario written as TOML."""

    def go(text: str, **overrides: Any) -> Ran:
        tomllib.loads(text)
        path = tmp_path / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        sink = Memory()
        outcome = run(read(path), sink, Overrides(start=START, **overrides))
        return Ran(outcome, spans_of(sink.bodies), points_of(sink.bodies), sink.bodies)

    return go


@pytest.fixture
def live(tmp_path: Path) -> Callable[..., list[ReadableSpan]]:
    """`live(scene)` starts real services of a fast stack (`more`: TOML after it, `task`: what is asked), plays a scene, gives back all spans."""

    def go(
        scene: Callable[[LiveStack, httpx.AsyncClient], Awaitable[None]], more: str = "", task: str = "calculation"
    ) -> list[ReadableSpan]:
        path, memory = tmp_path / "live.toml", InMemorySpanExporter()
        path.write_text(FAST.replace("calculation", task) + more, encoding="utf-8")
        tracing = SdkTracing(SimpleSpanProcessor(memory))

        async def main() -> None:
            async with (
                LiveStack(read(path), tracing, datetime.now(UTC)) as stack,
                httpx.AsyncClient(timeout=60, trust_env=False) as client,
            ):
                await scene(stack, client)
                await stack.gateway.drain(30.0)

        asyncio.run(main())
        return list(memory.get_finished_spans())

    return go
