"""Virtual time: an asyncio loop that jumps to the next timer. Code that only sleeps on its loop runs the same live and virtual.
Callbacks run in the order of their time, and of their making where times are equal: a run is repeatable."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from instrumented_stack.collector import rare_collections

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Call:
    """A callback to come; what asyncio calls a handle."""

    __slots__ = ("_context", "args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args, self._context = args, context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def run(self) -> None:
        callback = self.callback
        if callback is None:
            return
        if self._context is None:
            callback(*self.args)
        else:
            self._context.run(callback, *self.args)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 s and moves only when all tasks wait. Knows no sockets, signals or threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._serial = 0
        self._soon: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._halt = False

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Any:
        call = _Call(callback, args, context)
        self._soon.append(call)
        return call

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        call = _Call(callback, args, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, call))
        return call

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        raise RuntimeError("virtual time knows no threads")

    def stop(self) -> None:
        self._halt = True

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def run_forever(self) -> None:
        """Run until `stop`. Raises RuntimeError when every task waits for something that no timer will bring."""
        soon, timers = self._soon, self._timers
        events._set_running_loop(self)
        try:
            self._halt = False
            while not self._halt:
                if not soon:
                    if not timers:
                        raise RuntimeError("virtual time has nothing left to wait for")
                    when, _, call = heapq.heappop(timers)
                    if call.callback is None:
                        continue
                    self._now_s = max(self._now_s, when)
                    call.run()
                while soon:
                    soon.popleft().run()
        finally:
            events._set_running_loop(None)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on virtual time; no real second passes in a sleep. Nothing in it may wait for sockets or threads."""
    loop = VirtualLoop()
    try:
        with rare_collections():
            return loop.run_until_complete(main)
    finally:
        loop.close()
