"""Which days and hours of a window the rollups answer for, and the stretches between them that must be read from the runs.

Must stay true: every instant of the window is in a fresh day, a fresh hour or a stretch, and in one of them only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from analytics.stages_sql import statement
from ingest.store import Store

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS
MOST_STRETCHES = 60


@dataclass(frozen=True, slots=True)
class Block:
    """An hour, or a day, that its rollup answers for: [start, end) in ns, and of a day the revision of its rollup."""

    start: int
    end: int
    revision: int = 0


def floor_day(moment: datetime) -> int:
    """The beginning of its day (UTC), in ns."""
    return int(moment.timestamp()) * SECOND_NS // DAY_NS * DAY_NS


def fresh(store: Store, low: int, high: int) -> list[Block]:
    """Whole days and (outside of those) whole hours from `low` to `high` (ns) whose rollups are as new as their runs, in order."""
    first, end = low // DAY_NS * DAY_NS, -(-high // DAY_NS) * DAY_NS
    found = store.read(statement("rollups_state.sql"), low=first, high=min(end, 2**63 - 1))
    if not len(found):
        return []
    columns = [found[name].tolist() for name in ("hour", "fresh", "day", "revision")]
    blocks: list[Block] = []
    for hour, is_fresh, day, revision in zip(*columns, strict=True):
        start, day_start = int(hour) * SECOND_NS, int(day) * SECOND_NS
        if revision and day_start >= low and day_start + DAY_NS <= high:
            if not blocks or blocks[-1].start < day_start:
                blocks.append(Block(day_start, day_start + DAY_NS, int(revision)))
        elif is_fresh and start >= low and start + HOUR_NS <= high:
            blocks.append(Block(start, start + HOUR_NS))
    return blocks


def stretches(blocks: Sequence[Block], low: int, high: int) -> list[tuple[int, int]]:
    """From `low` to `high` without `blocks`, as (first, end) in ns. More than MOST_STRETCHES are joined over the shortest blocks
    between them: whoever reads them must still leave fresh blocks out."""
    found: list[tuple[int, int]] = []
    at = low
    for block in blocks:
        if block.start > at:
            found.append((at, block.start))
        at = block.end
    if at < high:
        found.append((at, high))
    while len(found) > MOST_STRETCHES:
        near = min(range(len(found) - 1), key=lambda i: found[i + 1][0] - found[i][1])
        found[near : near + 2] = [(found[near][0], found[near + 1][1])]
    return found


def condition(found: Sequence[tuple[int, int]], column: str = "Timestamp") -> str:
    """SQL that is true inside the stretches, in a form that prunes days and hours."""
    tests = [
        f"({column} >= fromUnixTimestamp64Nano({first}) AND {column} < fromUnixTimestamp64Nano({end}))"
        for first, end in found
    ]
    return f"({' OR '.join(tests)})" if tests else "false"


def days(blocks: Sequence[Block]) -> str:
    """SQL that is true for the rows of the rollups by day that answer for the days among `blocks`."""
    pairs = [f"(toDateTime({block.start // SECOND_NS}, 'UTC'), {block.revision})" for block in blocks if block.revision]
    return f"(Day, Revision) IN ({', '.join(pairs)})" if pairs else "false"
