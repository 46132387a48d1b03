"""What is in the store, in a few numbers: requests over time, end-to-end percentiles, and what did not get in.

Must stay true: a request is a trace, timed from its first start to its last end; failed ones are counted and kept out of percentiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from analytics.findings import Window
from ingest.store import Store

THIN_BELOW = 100
_REQUESTS = (
    "SELECT TraceId, min(Timestamp) AS Start, max(TraceDuration) / 1e6 AS Ms, argMin(Failed, Timestamp) AS RootFailed "
    "FROM stage_runs WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)} GROUP BY TraceId"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """Requests of a window. Times in ms; percentiles None when nothing succeeded; `thin` when fewer than 100 did."""

    requests: int
    failed: int
    stage_runs: int
    stages: int
    services: int
    users: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None

    @property
    def thin(self) -> bool:
        return self.requests - self.failed < THIN_BELOW


@dataclass(frozen=True, slots=True)
class NotStored:
    """What did not get in during a window: counts by reason, newest first sight of each."""

    rejected: dict[str, int]
    dead: dict[str, int]
    late: int
    repeated: int


def summary(store: Store, window: Window) -> Summary:
    """End-to-end figures of the window."""
    totals = store.read(
        "SELECT count() AS runs, uniqExact(Stage) AS stages, uniqExact(ServiceName) AS services, "
        "uniqExactIf(UserId, UserId != '') AS users FROM stage_runs "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}",
        **_bounds(window),
    ).iloc[0]
    ends = store.read(
        "SELECT count() AS n, countIf(RootFailed = 1) AS failed, "
        f"quantilesExactIf(0.5, 0.95, 0.99)(Ms, RootFailed = 0) AS q FROM ({_REQUESTS})",
        **_bounds(window),
    ).iloc[0]
    good = int(ends["n"]) - int(ends["failed"])
    p50, p95, p99 = (float(value) if good else None for value in ends["q"])
    return Summary(
        requests=int(ends["n"]),
        failed=int(ends["failed"]),
        stage_runs=int(totals["runs"]),
        stages=int(totals["stages"]),
        services=int(totals["services"]),
        users=int(totals["users"]),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
    )


def over_time(store: Store, window: Window, buckets: int = 96) -> pd.DataFrame:
    """Rows `Start, requests, failed, p50_ms, p95_ms, p99_ms` for each of about `buckets` equal steps that has requests; percentiles
    of good requests, NaN where none was."""
    step_s = max(1, round(window.seconds / buckets))
    frame = store.read(
        "SELECT toStartOfInterval(Start, toIntervalSecond({step:UInt32})) AS Bucket, count() AS requests, "
        "countIf(RootFailed = 1) AS failed, quantilesExactIf(0.5, 0.95, 0.99)(Ms, RootFailed = 0) AS q "
        f"FROM ({_REQUESTS}) GROUP BY Bucket ORDER BY Bucket",
        step=step_s,
        **_bounds(window),
    )
    if not len(frame):
        return pd.DataFrame(columns=["Start", "requests", "failed", "p50_ms", "p95_ms", "p99_ms"])
    parts = pd.DataFrame(frame["q"].tolist(), columns=["p50_ms", "p95_ms", "p99_ms"], dtype=float)
    parts[frame["failed"] == frame["requests"]] = float("nan")  # the engine says 0 for the percentile of nothing
    out = pd.concat([frame[["Bucket", "requests", "failed"]].rename(columns={"Bucket": "Start"}), parts], axis=1)
    out["Start"] = pd.to_datetime(out["Start"], utc=True)
    return out


def stage_shares(store: Store, window: Window) -> pd.DataFrame:
    """Rows `stage, service, runs, failed, critical_s, share, p95_ms`: where requests spend their time, most first.

    `critical_s` is time on the critical path; `share` its part of all critical time.
    """
    frame = store.read(
        "SELECT Stage AS stage, ServiceName AS service, count() AS runs, countIf(Failed = 1) AS failed, "
        "sum(CriticalTime) / 1e9 AS critical_s, if(failed = runs, nan, quantileExactIf(0.95)(SelfTime, Failed = 0) / 1e6) AS p95_ms FROM stage_runs "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)} "
        "GROUP BY stage, service ORDER BY critical_s DESC",
        **_bounds(window),
    )
    if not len(frame):
        return pd.DataFrame(columns=["stage", "service", "runs", "failed", "critical_s", "share", "p95_ms"])
    total = float(frame["critical_s"].sum())
    frame["share"] = frame["critical_s"] / total if total > 0 else 0.0
    return frame


def not_stored(store: Store, window: Window) -> NotStored:
    """Rejects, dead letters, late and repeated spans of the window, by reason."""
    bounds = _bounds(window)
    rejects = store.read(
        "SELECT Reason, sum(Count) AS n FROM ingest_rejects "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)} GROUP BY Reason ORDER BY n DESC",
        **bounds,
    )
    dead = store.read(
        "SELECT Reason, count() AS n FROM dead_letters "
        "WHERE ReceivedAt >= {start:DateTime64(3)} AND ReceivedAt < {end:DateTime64(3)} AND ReplayedAt IS NULL "
        "GROUP BY Reason ORDER BY n DESC",
        **bounds,
    )
    late = store.value(
        "SELECT countIf(dateDiff('second', Timestamp, IngestedAt) > 3600) FROM otel_traces "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}",
        **bounds,
    )
    return NotStored(_pairs(rejects), _pairs(dead), int(late or 0), 0)


def last_look(store: Store) -> datetime | None:
    """When the analyzers last ran; None when never."""
    row = store.read("SELECT count() AS n, max(RunAt) AS at FROM analyzer_runs").iloc[0]
    if not int(row["n"]):
        return None
    stamp = pd.Timestamp(row["at"])
    found: datetime = (stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")).to_pydatetime(
        warn=False
    )
    return found


def recent_traces(store: Store, window: Window, limit: int = 200) -> pd.DataFrame:
    """Rows `trace_id, start, ms, failed, stages`: the window's slowest traces, slowest first."""
    return store.read(
        "SELECT TraceId AS trace_id, min(Timestamp) AS start, max(TraceDuration) / 1e6 AS ms, max(Failed) AS failed, "
        "count() AS stages FROM stage_runs "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)} "
        "GROUP BY TraceId ORDER BY ms DESC LIMIT {limit:UInt32}",
        limit=limit,
        **_bounds(window),
    )


def _pairs(frame: pd.DataFrame) -> dict[str, int]:
    if not len(frame):
        return {}
    return dict(zip(frame["Reason"].astype(str), frame["n"].astype(int).tolist(), strict=True))


def _bounds(window: Window) -> dict[str, datetime]:
    return {"start": window.start, "end": window.end}
