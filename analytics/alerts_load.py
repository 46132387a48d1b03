"""What alerts read: p95, errors, silence, what was accepted and not stored. The SQL of the alerts.

Must stay true: a late span is not silence, a declared wait is not slowness, and a handful of requests is no p95.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from analytics.alerts import Reading, Rule
from analytics.failures_load import records
from ingest.store import Store

LEAST = 20
SPANS_S = (60, 300, 900)
MOST_LAG_S = 300.0
WEEKS = 4
ALL = ""
_REQUESTS = (
    "SELECT TraceId, min(Timestamp) AS Began, greatest(max(TraceDuration), max(Duration)) / 1e9 AS Whole, "
    "max(if(ParentSpanId = '', Failed, 0)) AS Bad, sum(WaitTime) / 1e9 AS Waited FROM stage_runs "
    "WHERE Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)} AND Kind != 'gap' GROUP BY TraceId"
)


def readings(store: Store, rules: Sequence[Rule], now: datetime) -> list[Reading]:
    """Every signal that `rules` ask for, at `now`, which may lie in the past (virtual time)."""
    wanted = {rule.signal for rule in rules}
    out: list[Reading] = []
    if wanted & {"p95_s", "error_share"}:
        end = now - timedelta(seconds=lateness_s(store, now))
        usual = usual_p95(store, end) if any(rule.dynamic for rule in rules) else None
        out += _requests(store, end, usual)
    alone = (("silence_s", _silence), ("unstored", _unstored), ("dead_letters_per_min", _dead_letters))
    return out + [measure(store, now) for signal, measure in alone if signal in wanted]


def lateness_s(store: Store, now: datetime) -> float:
    """How long after their end spans come (p90 of the last 10 minutes, at most 5 min): windows end that much before now.
    History that was loaded later than it happened says nothing about lateness and is left out."""
    row = store.read(
        "SELECT quantile(0.9)(late) AS late, count() AS n FROM (SELECT dateDiff('millisecond', Timestamp, IngestedAt) / 1e3 "
        "- Duration / 1e9 AS late FROM otel_traces WHERE IngestedAt > {start:DateTime64(3)} AND IngestedAt <= {end:DateTime64(3)} "
        "AND Timestamp > {start:DateTime64(3)} - INTERVAL 1 HOUR LIMIT 100000)",
        start=now - timedelta(minutes=10),
        end=now,
    ).iloc[0]
    if not int(row["n"]) or math.isnan(float(row["late"])):
        return 0.0
    return min(MOST_LAG_S, max(0.0, float(row["late"])))


def _requests(store: Store, end: datetime, usual: float | None) -> list[Reading]:
    """p95 and error share of the shortest span of time that holds enough requests."""
    for seconds in SPANS_S:
        row = store.read(
            "SELECT count() AS n, countIf(Bad = 0) AS good, countIf(Bad = 1) AS bad, "
            f"quantileExactIf(0.95)(greatest(Whole - Waited, 0), Bad = 0) AS p95 FROM ({_REQUESTS})",
            start=end - timedelta(seconds=seconds),
            end=end,
        ).iloc[0]
        if int(row["n"]) >= LEAST:
            slow = float(row["p95"]) if int(row["good"]) >= LEAST else None
            share = int(row["bad"]) / int(row["n"])
            return [Reading("p95_s", slow, int(row["good"]), usual), Reading("error_share", share, int(row["n"]))]
    return [Reading("p95_s", None, 0, usual), Reading("error_share", None)]


def usual_p95(store: Store, at: datetime) -> float | None:
    """Upper edge of normal for this hour of the week: median of the same hour in earlier weeks + 4 robust deviations
    (1.4826 MAD, at least 15 % of the median). None with less than two such hours."""
    values: list[float] = []
    for week in range(1, WEEKS + 1):
        start = at - timedelta(days=7 * week, minutes=30)
        row = store.read(
            f"SELECT countIf(Bad = 0) AS n, quantileExactIf(0.95)(greatest(Whole - Waited, 0), Bad = 0) AS p95 FROM ({_REQUESTS})",
            start=start,
            end=start + timedelta(hours=1),
        ).iloc[0]
        if int(row["n"]) >= LEAST:
            values.append(float(row["p95"]))
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return middle + 4 * max(spread, 0.15 * middle)


def _silence(store: Store, now: datetime) -> Reading:
    """Seconds since anything came (by arrival, so that late data counts), where this hour of the week, or the hour before, had traffic."""
    row = store.read(
        "SELECT max(least(IngestedAt, {now:DateTime64(3)})) AS came, max(Timestamp) AS happened, count() AS n FROM otel_traces "
        "WHERE Timestamp > {now:DateTime64(3)} - INTERVAL 8 DAY AND Timestamp <= {now:DateTime64(3)}",
        now=now,
    ).iloc[0]
    if not int(row["n"]):
        return Reading("silence_s", None)
    last = max(_utc(row["happened"]), _arrived(row["came"], now))
    if not _expected(store, now, last):
        return Reading("silence_s", 0.0, int(row["n"]))
    return Reading("silence_s", (now - last).total_seconds(), int(row["n"]))


def _arrived(value: Any, now: datetime) -> datetime:
    """Arrival counts while it is fresh; on virtual time everything 'arrived' at once, long after or before."""
    came = _utc(value)
    return came if timedelta(0) < now - came < timedelta(days=8) else datetime.fromtimestamp(0, UTC)


def _expected(store: Store, now: datetime, last: datetime) -> bool:
    """Whether traffic is due: the hour before the silence was busy, and so was this hour a week ago (if a week is known)."""
    row = store.read(
        "SELECT countIf(Timestamp > {last:DateTime64(3)} - INTERVAL 1 HOUR) AS before, "
        "countIf(Timestamp > {week:DateTime64(3)} AND Timestamp <= {week:DateTime64(3)} + INTERVAL 1 HOUR) AS then, "
        "min(Timestamp) AS first FROM otel_traces WHERE Timestamp > {week:DateTime64(3)} - INTERVAL 1 DAY "
        "AND Timestamp <= {last:DateTime64(3)}",
        last=last,
        week=now - timedelta(days=7),
    ).iloc[0]
    known = int(row["before"]) > 0 and _utc(row["first"]) <= now - timedelta(days=7)
    return int(row["then"]) >= LEAST if known else int(row["before"]) >= LEAST


def _unstored(store: Store, now: datetime) -> Reading:
    """Spans accepted in the last two minutes while nothing at all was stored; 0 as soon as something was."""
    rows = records(
        store.read(
            "SELECT Name, sum(greatest(last - first, 0)) AS grown FROM (SELECT Name, argMin(Value, Timestamp) AS first, "
            "argMax(Value, Timestamp) AS last FROM ingest_meter WHERE Name IN ('accepted', 'stored') "
            "AND Timestamp > {start:DateTime64(3)} AND Timestamp <= {end:DateTime64(3)} "
            "GROUP BY Name, Instance, toString(Labels)) GROUP BY Name",
            start=now - timedelta(seconds=120),
            end=now,
        )
    )
    grown = {str(row["Name"]): float(row["grown"]) for row in rows}
    if "accepted" not in grown:
        return Reading("unstored", None)
    known = grown.get("stored", 0.0) + grown.get("duplicate_messages", 0.0)  # a retry is stored already
    return Reading("unstored", 0.0 if known > 0 else grown["accepted"])


def _dead_letters(store: Store, now: datetime) -> Reading:
    count = int(
        store.value(
            "SELECT count() FROM dead_letters WHERE ReceivedAt > {start:DateTime64(3)} AND ReceivedAt <= {end:DateTime64(3)}",
            start=now - timedelta(seconds=60),
            end=now,
        )
    )
    return Reading("dead_letters_per_min", float(count), count)


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (
        (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).floor("us").to_pydatetime()
    )
    return moment
