"""Latency by hour and dimension, so that pages never scan runs. A bucketed sketch, within 0.4 % of the value at its rank.

Must stay true: an hour's rollup counts only while no run of that hour is newer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from analytics.stages_sql import statement
from ingest.store import Store

ROOT = "(ParentSpanId = '' OR position(Marks, 'orphan') > 0)"
HOURS_AT_ONCE = 12


def roll(store: Store, before: datetime | None = None) -> int:
    """Roll up every hour that has newer runs than its rollup (only those that start before `before`); returns how many."""
    limit = before or datetime.now(UTC) + timedelta(days=3650)
    stale = store.read(statement("rollups_stale.sql"), before=limit.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))
    hours = (
        [(int(hour.timestamp()), int(dirty)) for hour, dirty in zip(stale["Hour"], stale["Dirty"], strict=True)]
        if len(stale)
        else []
    )
    while hours:
        first = hours[0][0]
        part = [item for item in hours[:HOURS_AT_ONCE] if item[0] < first + HOURS_AT_ONCE * 3600]
        hours = hours[len(part) :]
        _roll_hours(store, [hour for hour, _ in part], max(dirty for _, dirty in part))
    return len(stale)


def _roll_hours(store: Store, hours: list[int], revision: int) -> None:
    """Roll [first, last] hour; hours between them that are fresh already come out the same once more."""
    settings = {"final": 0}
    every = list(range(hours[0], hours[-1] + 1, 3600))
    store.command(
        statement("rollups_roll.sql", root=ROOT),
        settings=settings,
        low=hours[0],
        high=hours[-1] + 3600,
        revision=revision,
    )
    store.command(statement("rollups_rolled.sql"), hours=every, revision=revision)
