"""`stagescope watch`: builds stage runs as spans come in, keeps rollups, runs the analyzers and the alerts, over and over, on any store.

Must stay true: while the store is away it waits and goes on; it never skips traces.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analytics import alerts_send, alerts_watch, rollups, run
from analytics.alerts import Rule
from analytics.alerts_send import Notifier
from ingest.errors import BadSetting, StagescopeError
from ingest.failure_index import FailureIndex, StoreFailures, catch_up, open_index
from ingest.settings import Settings
from ingest.store import Store
from ui.loops import Loop, building

ROLL_EVERY_S, ALERTS_EVERY_S, INDEX_EVERY_S = 120.0, 15.0, 20.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the analyzers look, how far back, and whether alerts are watched and stage runs built too."""

    every_s: float = 30.0
    back: str = "7d"
    alerts: bool = True
    build: bool = True


def watch(store: Store, settings: Settings, pace: Pace, stop: threading.Event) -> None:
    """Until `stop` is set. Raises BadSetting at start, StagescopeError when one of the loops ended by itself."""
    rules, receivers = alerts_watch.load_rules(_path(settings.alert_rules)), alerts_send.notifiers(settings)
    loops = [
        *([building(store, settings)] if pace.build else []),
        Loop("rollups", lambda: _done(rollups.roll(store)), ROLL_EVERY_S),
        Loop("analyzers", lambda: _analyze(store, pace.back), pace.every_s),
    ]
    if settings.failures not in ("", "store:"):
        loops.append(Loop("failure index", Indexing(store, open_index(settings, store)).turn, INDEX_EVERY_S))
    if pace.alerts:
        loops.append(Loop("alerts", Alerting(store, rules, receivers).turn, ALERTS_EVERY_S))
    ended = threading.Event()
    threads = [threading.Thread(target=loop.run, args=(ended,), name=loop.name, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    while not stop.wait(0.5) and not ended.is_set():
        pass
    by_itself = ended.is_set()
    ended.set()
    for thread in threads:
        thread.join(timeout=30)
    if by_itself:
        raise StagescopeError("one of the loops ended by itself; the reason stands above")


class Indexing:
    """Copies the failure log to an index outside. What it refuses is said; the log in the store goes on, and so do the other loops."""

    def __init__(self, store: Store, index: FailureIndex) -> None:
        self._kept, self._index, self._first, self._said = StoreFailures(store), index, True, ""

    def turn(self) -> None:
        try:
            done = catch_up(self._kept, self._index, again=self._first)
        except BadSetting as err:  # such as a token that expired: mended from outside, so the next turn tries again
            self._tell(str(err))
            return
        self._first = False
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(done.rejected.items()))
        if reasons:
            _say(
                f"failure index {self._index.name} refused documents ({reasons}); the store keeps them: mend the mapping "
                "of the data stream and start `stagescope watch` again to send them once more"
            )
        self._tell("")

    def _tell(self, problem: str) -> None:
        """Each problem once, not every turn."""
        if problem and problem != self._said:
            _say(f"failure index: {problem}")
        self._said = problem


class Alerting:
    """One turn of the alerts, saying each change of state once."""

    def __init__(self, store: Store, rules: Sequence[Rule], receivers: Sequence[Notifier]) -> None:
        self._store, self._rules, self._receivers = store, rules, receivers
        self._states: dict[str, str] = {}

    def turn(self) -> None:
        done = alerts_watch.turn(self._store, self._rules, self._receivers, datetime.now(UTC))
        for alert in done.alerts:
            if self._states.get(alert.key) != alert.state:
                _say(f"alert {alert.key}: {alert.state}: {alert.summary}")
        self._states = {alert.key: alert.state for alert in done.alerts}
        for problem in done.problems:
            _say(f"alerts: {problem}")


def _analyze(store: Store, back: str) -> None:
    if run.covering(store) is not None:
        run.run(store, run.last(back))


def _done(_: object) -> None:
    """A turn has no result."""


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _say(line: str) -> None:
    print(f"stagescope watch: {line}", file=sys.stderr, flush=True)
