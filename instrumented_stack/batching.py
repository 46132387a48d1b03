"""Static batching, as old servers do it: a batch waits until it is full or its window is over, and nobody leaves before the slowest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from instrumented_stack.engine import Answer, Ask, Generates


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How many make a batch, and how long its first member waits for the others."""

    size: int = 4
    window_s: float = 0.3


class _Batch:
    def __init__(self) -> None:
        self.members = 0
        self.left = 0
        self.go = asyncio.Event()
        self.over = asyncio.Event()


class StaticBatch:
    """One engine behind a static batcher."""

    def __init__(self, engine: Generates) -> None:
        self._engine = engine
        self._open: _Batch | None = None

    async def generate(self, ask: Ask, policy: BatchPolicy) -> tuple[Answer, float]:
        """The answer, and the seconds spent waiting for batch mates (before the start and after the own end)."""
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        batch = self._open
        if batch is None:
            batch = self._open = _Batch()
            loop.call_later(policy.window_s, self._start, batch)
        batch.members += 1
        if batch.members >= policy.size:
            self._start(batch)
        await batch.go.wait()
        started = loop.time()
        answer = await self._engine.generate(ask)
        ended = loop.time()
        batch.left -= 1
        if batch.left == 0:
            batch.over.set()
        await batch.over.wait()
        waited = started - arrived + loop.time() - ended
        return replace(answer, batch_size=max(answer.batch_size or 0, batch.members)), waited

    def _start(self, batch: _Batch) -> None:
        if batch.go.is_set():
            return
        batch.left = batch.members
        if self._open is batch:
            self._open = None
        batch.go.set()
