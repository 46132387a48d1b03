"""A scenario on virtual time: weeks of traffic in seconds. Same scenario, seed and start: the same bytes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from instrumented_stack import gateway
from instrumented_stack.asking import RequestMaker
from instrumented_stack.exposition import to_otlp
from instrumented_stack.gateway import TokenBucket
from instrumented_stack.outcome import Outcome, Progress, truth_of
from instrumented_stack.samples import Sampler
from instrumented_stack.scenario import Scenario
from instrumented_stack.sinks import Sink
from instrumented_stack.telemetry import BytesTracing
from instrumented_stack.traffic import Arrival, arrivals, peak_rps
from instrumented_stack.world import World

NS = 1_000_000_000


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
        self._time: Callable[[], float] = time.monotonic  # until a loop runs

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, on the clock of the loop that runs."""
        return self._start_ns + int(self._time() * 1e9)

    async def run(self, progress: Progress | None) -> Outcome:
        """Everything until the last request has ended."""
        loop, scenario = asyncio.get_running_loop(), self.scenario
        self._time = loop.time
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
        status, _ = await gateway.handle(self._world, request, self._bucket)
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
