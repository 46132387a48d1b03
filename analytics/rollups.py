"""Latency by hour (and day) and dimension, so that pages never scan runs. A bucketed sketch, within 0.4 % of the value at its rank.

Must stay true: an hour's rollup counts only while no run of that hour is newer.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from analytics import fresh_hours
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
    _roll_days(store, min(limit, datetime.now(UTC)))
    return len(stale)


def _roll_hours(store: Store, hours: list[int], revision: int) -> None:
    numbers = {"low": hours[0], "high": hours[-1] + 3600, "revision": revision}
    store.command(statement("rollups_roll.sql", root=ROOT), settings={"final": 0}, hours=hours, **numbers)
    store.command(statement("rollups_rolled.sql"), hours=hours, revision=revision)


def _roll_days(store: Store, before: datetime) -> None:
    """Sum up the hours of each day that was over `before` and whose hours are all fresh, unless its sum is of these hours already."""
    state = store.read(statement("rollups_state.sql"), low=0, high=fresh_hours.floor_day(before))
    if not len(state):
        return
    stale = state[(state["made_from"] != 0) & (state["revision"] == 0)].drop_duplicates("day")
    revision = max(int(store.value("SELECT max(Revision) FROM stage_days") or 0) + 1, time.time_ns() // 1_000_000)
    for day, made_from in zip(stale["day"].tolist(), stale["made_from"].tolist(), strict=True):
        store.command(statement("rollups_day.sql"), settings={"final": 0}, day=int(day), revision=revision)
        store.command(statement("rollups_day_rolled.sql"), day=int(day), made_from=int(made_from), revision=revision)
