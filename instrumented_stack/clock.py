"""Virtual time: an asyncio loop that jumps to the next timer. Code that only sleeps on its loop runs the same live and virtual."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """Never waits: what the loop would have slept is added to its clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("virtual time has nothing left to wait for: some task waits on something that never comes")
        if timeout > 0:
            self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 s and moves only when all tasks wait."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self._clock_resolution = 1e-7

    def time(self) -> float:
        return self._jump.now_s


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on virtual time; no real second passes in a sleep. Nothing in it may wait for sockets or threads."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
