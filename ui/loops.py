"""Things done again and again in a thread: building stage runs is one.

Must stay true: what is away for a while only delays a turn; whatever else goes wrong ends the loop and says so.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from analytics import stages
from ingest import mapping
from ingest.errors import Unavailable
from ingest.settings import Settings
from ingest.store import Store

BUILD_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Something done again and again, never for more than half of the time."""

    name: str
    turn: Callable[[], None]
    every_s: float

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; waits longer while something is away. Whatever else ends it sets `stop` too."""
        try:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    self.turn()
                    pause_s = max(self.every_s - (time.monotonic() - began), time.monotonic() - began)
                except Unavailable as err:
                    print(f"stagescope {self.name}: {err}", file=sys.stderr, flush=True)
                    pause_s = max(self.every_s, err.retry_after_s)
                stop.wait(pause_s)
        except BaseException:
            stop.set()
            raise


def building(store: Store, settings: Settings) -> Loop:
    """Keeps `stage_runs` up with the spans that come in. Raises BadSetting for a stages.toml that cannot be used."""
    use = mapping.load(settings.stages or None)

    def turn() -> None:
        stages.build_touched(store, use)

    return Loop("stages", turn, BUILD_EVERY_S)
