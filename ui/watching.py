"""`stagescope watch`: builds stage runs as spans come in and runs the analyzers over and over, on any store.

Must stay true: while the store is away it waits and goes on; it never skips traces.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from analytics import run, stages
from ingest.errors import StagescopeError, Unavailable
from ingest.mapping import StageMapping
from ingest.store import Store

BUILD_EVERY_S = 3.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the analyzers look, and how far back."""

    every_s: float = 30.0
    back: str = "7d"


def watch(store: Store, pace: Pace, mapping: StageMapping, stop: threading.Event) -> None:
    """Until `stop` is set. Raises StagescopeError when one of the two loops ended by itself."""
    builder = threading.Thread(
        target=_loop, args=(lambda: _build(store, mapping), BUILD_EVERY_S, stop), name="stages", daemon=True
    )
    builder.start()
    _loop(lambda: _analyze(store, pace.back), pace.every_s, stop, alive=builder.is_alive)
    builder.join(timeout=30)


def _loop(
    turn: Callable[[], None], every_s: float, stop: threading.Event, alive: Callable[[], bool] = lambda: True
) -> None:
    """`turn` every `every_s`, never more than half of the time; waits longer while something is away."""
    while not stop.is_set():
        began = time.monotonic()
        try:
            turn()
            pause_s = max(every_s - (time.monotonic() - began), time.monotonic() - began)
        except Unavailable as err:
            print(f"stagescope watch: {err}", file=sys.stderr, flush=True)
            pause_s = max(every_s, err.retry_after_s)
        if not alive() and not stop.is_set():
            raise StagescopeError("building stage runs ended by itself; the reason stands above")
        stop.wait(pause_s)


def _build(store: Store, mapping: StageMapping) -> None:
    stages.build_touched(store, mapping)


def _analyze(store: Store, back: str) -> None:
    if run.covering(store) is not None:
        run.run(store, run.last(back))
