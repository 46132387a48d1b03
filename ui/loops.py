"""Things done again and again in a thread: building stage runs is one.

Must stay true: what is away, or a query that the engine refuses (memory, disk, time), only delays a turn, and is said;
whatever else goes wrong is a bug: it ends the loop and says so.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from clickhouse_connect.driver.exceptions import DatabaseError

from analytics import stages
from ingest import mapping
from ingest.errors import Unavailable
from ingest.settings import Settings
from ingest.store import Store

BUILD_EVERY_S = 2.0
LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Something done again and again, never for more than half of the time."""

    name: str
    turn: Callable[[], None]
    every_s: float

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; waits twice as long after each turn that fails in a row. Whatever else ends it sets `stop` too."""
        failed = 0
        try:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    self.turn()
                    failed, pause_s = 0, max(self.every_s - (time.monotonic() - began), time.monotonic() - began)
                except Unavailable as err:
                    print(f"stagescope {self.name}: {err}", file=sys.stderr, flush=True)
                    pause_s = max(self.every_s, err.retry_after_s)
                except DatabaseError as err:
                    failed, pause_s = failed + 1, min(self.every_s * 2**failed, LONGEST_PAUSE_S)
                    self._refused(err, pause_s)
                stop.wait(pause_s)
        except BaseException:
            stop.set()
            raise

    def _refused(self, err: DatabaseError, pause_s: float) -> None:
        first = (str(err).strip().splitlines() or ["no reason given"])[0][:300]
        print(
            f"stagescope {self.name}: the store refused, again in {pause_s:.0f} s: {first}", file=sys.stderr, flush=True
        )


def building(store: Store, settings: Settings) -> Loop:
    """Keeps `stage_runs` up with the spans that come in. Raises BadSetting for a stages.toml that cannot be used."""
    use = mapping.load(settings.stages or None)

    def turn() -> None:
        stages.build_touched(store, use)

    return Loop("stages", turn, BUILD_EVERY_S)
