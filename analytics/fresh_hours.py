"""Which hours of a window the rollups answer for, and the stretches between them that must be read from the runs.

Must stay true: every instant of the window is in a fresh hour or in a stretch, and in one of them only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingest.store import Store

HOUR_NS = 3_600_000_000_000
MOST_STRETCHES = 60
FRESH = """
SELECT toUnixTimestamp(Hour) AS hour FROM stage_hours FINAL
WHERE Rolled >= Dirty AND Hour >= fromUnixTimestamp64Nano({low:Int64}) AND Hour + INTERVAL 1 HOUR <= fromUnixTimestamp64Nano({high:Int64})
ORDER BY hour
"""


def fresh(store: Store, low: int, high: int) -> list[int]:
    """Whole hours from `low` to `high` (ns) whose rollup is as new as their runs, as ns of their start, in order."""
    found = store.read(FRESH, low=low, high=high)
    return [int(hour) * 1_000_000_000 for hour in found["hour"].tolist()] if len(found) else []


def stretches(hours: Sequence[int], low: int, high: int) -> list[tuple[int, int]]:
    """From `low` to `high` without `hours`, as (first, end) in ns. More than MOST_STRETCHES are joined over the shortest hours
    between them: whoever reads them must still leave fresh hours out."""
    found: list[tuple[int, int]] = []
    at = low
    for hour in hours:
        if hour > at:
            found.append((at, hour))
        at = hour + HOUR_NS
    if at < high:
        found.append((at, high))
    while len(found) > MOST_STRETCHES:
        near = min(range(len(found) - 1), key=lambda i: found[i + 1][0] - found[i][1])
        found[near : near + 2] = [(found[near][0], found[near + 1][1])]
    return found


def condition(found: Sequence[tuple[int, int]]) -> str:
    """SQL that is true inside the stretches, in a form that prunes days and hours."""
    tests = [
        f"(Timestamp >= fromUnixTimestamp64Nano({first}) AND Timestamp < fromUnixTimestamp64Nano({end}))"
        for first, end in found
    ]
    return f"({' OR '.join(tests)})" if tests else "false"
