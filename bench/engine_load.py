"""The same closed loop of requests against a real vLLM server and against the simulated engine, and what came of it.

Must stay true: both are asked for the same tokens in the same order of events, and are timed by the clock of the loop they run on.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from instrumented_stack.clock import run_virtual
from instrumented_stack.engine import Ask, EngineOptions
from instrumented_stack.engine_sim import Engine


@dataclass(frozen=True, slots=True)
class Shape:
    """`clients` ask at once, each `rounds` times one after the other, for `output` tokens after `prompt` tokens."""

    prompt: int
    output: int
    clients: int
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """When a request was sent and when each token came, in seconds of the loop's clock. Simulated: the first and the last only."""

    sent_s: float
    tokens_s: tuple[float, ...]
    output: int

    @property
    def first_s(self) -> float:
        return self.tokens_s[0] - self.sent_s

    @property
    def each_s(self) -> float:
        return (self.tokens_s[-1] - self.tokens_s[0]) / max(1, self.output - 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the curve: medians over requests of time to first token and time per output token (s); tokens/s over the whole."""

    clients: int
    ttft_s: float
    tpot_s: float
    tokens_per_s: float


Asks = Callable[[Shape], Awaitable[Timing]]


async def closed_loop(ask: Asks, shape: Shape) -> list[Timing]:
    """All timings, clients' in turn."""

    async def client() -> list[Timing]:
        return [await ask(shape) for _ in range(shape.rounds)]

    done = await asyncio.gather(*(client() for _ in range(shape.clients)))
    return [timing for part in done for timing in part]


def point(timings: list[Timing], clients: int) -> Point:
    """Summed up."""
    wall = max(item.tokens_s[-1] for item in timings) - min(item.sent_s for item in timings)
    return Point(
        clients,
        statistics.median(item.first_s for item in timings),
        statistics.median(item.each_s for item in timings),
        sum(item.output for item in timings) / wall,
    )


def median_point(points: list[Point]) -> Point:
    """The median of several runs, figure by figure."""
    return Point(
        points[0].clients,
        statistics.median(item.ttft_s for item in points),
        statistics.median(item.tpot_s for item in points),
        statistics.median(item.tokens_per_s for item in points),
    )


class RealServer:
    """A vLLM server at `url`. Prompts are random token ids, so that no prefix is in its cache; answers never end early."""

    def __init__(self, url: str, model: str) -> None:
        self._url, self._model, self._rng = url.rstrip("/"), model, random.Random(5)
        limits = httpx.Limits(max_connections=64)
        self._client = httpx.AsyncClient(timeout=600.0, trust_env=False, limits=limits)

    async def __aenter__(self) -> RealServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def touch(self, tokens: int) -> float:
        """Seconds of a request of so many words that no model answers (/tokenize)."""
        clock = asyncio.get_running_loop().time
        sent = clock()
        body = {"model": self._model, "prompt": "word " * tokens}
        (await self._client.post(f"{self._url}/tokenize", json=body)).raise_for_status()
        return clock() - sent

    async def ask(self, shape: Shape) -> Timing:
        """One completion, token by token. Raises httpx.HTTPStatusError."""
        body = {
            "model": self._model,
            "prompt": [self._rng.randrange(1_000, 40_000) for _ in range(shape.prompt)],
            "max_tokens": shape.output,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        clock = asyncio.get_running_loop().time
        sent, stamps = clock(), []
        async with self._client.stream("POST", f"{self._url}/v1/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if line.startswith("data: {") and json.loads(line[6:])["choices"]:
                    stamps.append(clock())
        return Timing(sent, tuple(stamps), shape.output)


def simulate(options: EngineOptions, shape: Shape) -> list[Timing]:
    """The same loop on virtual time. `options.model.overhead_s` is the host's work before the scheduler sees a request, one at a time."""

    async def main() -> list[Timing]:
        engine, host = Engine(options), asyncio.Lock()

        async def ask(shape: Shape) -> Timing:
            clock = asyncio.get_running_loop().time
            sent = clock()
            async with host:
                await asyncio.sleep(options.model.overhead_s)
            began = clock()
            answer = await engine.generate(Ask(shape.prompt, shape.output))
            return Timing(sent, (began + answer.first_token_s, clock()), shape.output)

        return await closed_loop(ask, shape)

    return run_virtual(main())
