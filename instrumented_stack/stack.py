"""One run of the stack on virtual time, from a scenario to OTLP and the labelled truth. Same scenario, seed and start: the same bytes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from instrumented_stack import gateway
from instrumented_stack.asking import RequestMaker
from instrumented_stack.clock import run_virtual
from instrumented_stack.exposition import to_otlp
from instrumented_stack.gateway import TokenBucket
from instrumented_stack.read import read
from instrumented_stack.samples import Sampler
from instrumented_stack.scenario import Scenario
from instrumented_stack.sinks import Sink, open_sink
from instrumented_stack.telemetry import BytesTracing
from instrumented_stack.traffic import Arrival, arrivals, peak_rps
from instrumented_stack.world import World

NS = 1_000_000_000
Progress = Callable[[float, int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did: counts, when (UTC), and the truth as a JSON document."""

    requests: int
    failed: int
    spans: int
    start: datetime
    end: datetime
    truth: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line may say louder than the file. None = as in the file."""

    rps: float | None = None
    seconds: float | None = None
    seed: int | None = None
    start: datetime | None = None


def prepare(scenario: Scenario | str | Path, overrides: Overrides) -> Scenario:
    """Read the file if need be and apply the overrides."""
    plain = scenario if isinstance(scenario, Scenario) else read(Path(scenario))
    if overrides.seconds is not None:
        plain = plain.scaled(overrides.seconds)
    if overrides.seed is not None:
        plain = replace(plain, seed=overrides.seed)
    if overrides.rps is not None:
        plain = replace(plain, traffic=replace(plain.traffic, rps=overrides.rps, steps=(), bursts=(), arrivals=None))
    return plain


def start_of(scenario: Scenario, overrides: Overrides) -> datetime:
    """The given start, else so that the run ends now; whole seconds, UTC."""
    if overrides.start is not None:
        return overrides.start.astimezone(UTC)
    return (datetime.now(UTC) - timedelta(seconds=scenario.seconds)).replace(microsecond=0)


def run(
    scenario: Scenario | str | Path,
    otlp: str | Sink,
    overrides: Overrides | None = None,
    progress: Progress | None = None,
    truth: str | Path | None = None,
) -> Outcome:
    """Run `scenario` on virtual time and write OTLP to `otlp` (URL, folder, .jsonl file or a Sink).
    `truth.json` goes to `truth`, or into the folder; `progress(share done, requests)` is called now and then."""
    given = overrides or Overrides()
    plain = prepare(scenario, given)
    start = start_of(plain, given)
    sink = open_sink(otlp) if isinstance(otlp, str) else otlp
    try:
        outcome = run_virtual(Replay(plain, start, sink).run(progress))
    finally:
        sink.close()
    target = _truth_path(otlp, truth)
    if target is not None:
        target.write_text(json.dumps(outcome.truth, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return outcome


def _truth_path(otlp: str | Sink, truth: str | Path | None) -> Path | None:
    if truth is not None:
        return Path(truth)
    if not isinstance(otlp, str) or otlp.startswith(("http://", "https://")):
        return None
    path = Path(otlp)
    return path.with_suffix(".truth.json") if path.suffix in (".jsonl", ".json") else path / "truth.json"


class Replay:
    """A scenario on virtual time: arrivals become tasks on the loop, samples are taken beside them."""

    def __init__(self, scenario: Scenario, start: datetime, sink: Sink) -> None:
        self.scenario, self.start, self._sink = scenario, start, sink
        self._start_ns = round(start.timestamp()) * NS
        self._tracing = BytesTracing(self.now_ns, lambda body, _: sink.write("traces", body))
        self._world = World(scenario, self._tracing, peak_rps(scenario.traffic))
        self._maker = RequestMaker(scenario, self._start_ns)
        self._bucket = TokenBucket(scenario.switches.rate_limit, 2 * scenario.switches.rate_limit)
        self._failed = 0

    def now_ns(self) -> int:
        return self._start_ns + int(asyncio.get_running_loop().time() * 1e9)

    async def run(self, progress: Progress | None) -> Outcome:
        """Everything until the last request has ended."""
        loop, scenario = asyncio.get_running_loop(), self.scenario
        sampling = asyncio.create_task(self._sample())
        running: set[asyncio.Task[None]] = set()
        number = 0
        for arrival in arrivals(scenario, self.start.timestamp()):
            await asyncio.sleep(max(0.0, arrival.at_s - loop.time()))
            task = asyncio.create_task(self._one(number, arrival))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
            if progress is not None and number % 1_000 == 0:
                progress(arrival.at_s / scenario.seconds, number)
        while running:
            await asyncio.gather(*running)
        await asyncio.sleep(max(0.0, scenario.seconds - loop.time()))
        sampling.cancel()
        self._tracing.flush()
        spans = self._tracing.spans
        end = self.start + timedelta(seconds=scenario.seconds)
        truth = truth_of(scenario, self.start, number, spans)
        return Outcome(number, self._failed, spans, self.start, end, truth)

    async def _one(self, number: int, arrival: Arrival) -> None:
        request = self._maker.make(number, arrival)
        self._tracing.open_trace(request.link)
        status = await gateway.handle(self._world, request, self._bucket)
        self._failed += status >= 400
        self._tracing.close_trace(request.link.trace_id)

    async def _sample(self) -> None:
        every = sample_every_s(self.scenario)
        sampler = Sampler(self._world, random.Random(f"{self.scenario.seed}/samples"))
        held: list[bytes] = []
        try:
            while True:
                await asyncio.sleep(every)
                now_s = asyncio.get_running_loop().time()
                held.append(to_otlp(sampler.read(now_s), self.now_ns(), self._start_ns))
                if sum(map(len, held)) > 2_000_000:
                    self._sink.write("metrics", b"".join(held))
                    held.clear()
        finally:
            if held:
                self._sink.write("metrics", b"".join(held))


def sample_every_s(scenario: Scenario) -> float:
    """Seconds between two samples: as the scenario says, else 5 in short runs, 300 at most in long ones."""
    return scenario.sample_every_s or min(300.0, max(5.0, scenario.seconds / 720))


def truth_of(scenario: Scenario, start: datetime, requests: int, spans: int) -> dict[str, Any]:
    """What was injected and what must be found; times in ISO 8601 UTC."""

    def at(seconds: float) -> str:
        return (start + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    faults = [
        {
            "stage": item.stage,
            "cause": item.kind,
            "start": at(item.start_s),
            "end": at(item.end_s),
            "where": {key: list(values) if len(values) > 1 else values[0] for key, values in item.where.items()},
            "strength": item.strength,
        }
        for item in scenario.faults
    ]
    expects = [
        {
            key: value
            for key, value in (("stage", e.stage), ("cause", e.cause), ("cluster", e.cluster), ("optional", e.optional))
            if value
        }
        for e in scenario.expects
    ]
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": scenario.seed,
        "start": at(0.0),
        "end": at(scenario.seconds),
        "requests": requests,
        "spans": spans,
        "tool_select": scenario.switches.tool_select,
        "faults": faults,
        "expect": expects,
    }
