"""Failure clusters and the findings made of them: who is hit, how often, since when, what to change.

Must stay true: a request counts once a cluster, at the deepest stage that failed, however many spans repeat the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from analytics import failures_load, scenes
from analytics.failures_collect import collect
from analytics.findings import Analyzer, Evidence, Finding, Window, finding_key, iso
from ingest.store import Store

LEAST_REQUESTS = 3
LEAST_SHARE = 0.001
COLUMNS = "cluster_id label count users first_seen last_seen trend scene examples".split()

__all__ = ["ANALYZER", "COLUMNS", "Data", "clusters", "collect", "find", "load", "wilson_low"]


@dataclass(frozen=True, slots=True)
class Data:
    """What `find` judges: one row a cluster (docs/failures.md), and how many requests the window holds."""

    clusters: pd.DataFrame
    requests: int
    window: Window
    rows_read: int = 0
    note: str = ""
    tools: tuple[dict[str, Any], ...] = field(default=())


def clusters(store: Store, window: Window | None = None) -> pd.DataFrame:
    """One row a failure cluster, most requests first: COLUMNS, then service, stage, tier, tool, model, version, events,
    recovered, lost_seconds, share, change, error_type, example (a message), before. `count` is distinct requests."""
    return failures_load.clusters(store, window)


def load(store: Store, window: Window) -> Data:
    """Collect what is new in the window, then read it back as clusters."""
    collect(store, window)
    frame = failures_load.clusters(store, window)
    failures_load.remember(store, frame)
    requests, runs = failures_load.traffic(store, window)
    note = "" if runs else "no stage runs in the window"
    return Data(frame, requests, window, runs, note)


def find(data: Data) -> list[Finding]:
    """A finding for each cluster that hits at least 3 requests and surely more than 0.1 % of them."""
    out = [_finding(row, data) for row in data.clusters.to_dict("records") if _matters(row, data.requests)]
    return sorted(out, key=lambda item: (-item.users, -item.lost_seconds, item.key))


def wilson_low(hits: int, total: int, z: float = 1.645) -> float:
    """Lower end of the Wilson score interval of a share (Wilson 1927), one-sided 95 % by default."""
    if total <= 0:
        return 0.0
    share = min(1.0, hits / total)
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (centre - spread) / (1 + z * z / total))


def _matters(row: dict[Any, Any], requests: int) -> bool:
    count = int(row["count"])
    return count >= LEAST_REQUESTS and wilson_low(count, max(requests, count)) > LEAST_SHARE


def _finding(row: dict[Any, Any], data: Data) -> Finding:
    scene = scenes.BY_NAME.get(str(row["scene"]))
    count, share = int(row["count"]), int(row["count"]) / max(1, data.requests, int(row["count"]))
    lost = float(row["lost_seconds"])
    noise = 1.645 / math.sqrt(max(1, count))
    return Finding(
        key=finding_key("failure", str(row["cluster_id"])),
        kind="failure",
        subject=_subject(row),
        title=_title(row, scene),
        cause=scene.cause if scene else "unknown",
        severity=_severity(share, str(row["trend"])),
        lost_seconds=lost,
        lost_low=max(0.0, lost * (1 - noise)),
        lost_high=lost * (1 + noise),
        share_of_e2e_p95=0.0,
        requests=count,
        users=int(row["users"]),
        evidence=_evidence(row, data, scene),
        recommendation=scene.fix if scene else _new_fix(row),
        effort=scene.effort if scene else "medium",
        expected_saving_ms=1000 * lost / count,
        verify=_verify(row, scene),
        trace_ids=tuple(row["examples"]),
        window=data.window,
        first_seen=_moment(row["first_seen"]),
        last_seen=_moment(row["last_seen"]),
        query=_query(str(row["cluster_id"]), data.window),
    )


def _subject(row: dict[Any, Any]) -> dict[str, str]:
    names = ("service", "stage", "tier", "model", "tool", "dimension")
    return {**{name: str(row.get(name, "") or "") for name in names}, "cluster": str(row["cluster_id"])}


def _title(row: dict[Any, Any], scene: scenes.Scene | None) -> str:
    where = f"{row['stage']}" + (f" ({row['tool']})" if row["tool"] and row["tool"] != row["stage"] else "")
    what = scene.title[:1].upper() + scene.title[1:] if scene else "Failure of a new kind"
    label = str(row["label"]).removesuffix(f" [tool={row['tool']}]")
    return f"{what} at {where}: {label}"


def _severity(share: float, trend: str) -> str:
    level = 0 if share > 0.05 else 1 if share > 0.01 else 2 if share > 0.003 else 3
    if trend in ("rising", "new") and level > 1:
        level -= 1
    return ("critical", "high", "medium", "low")[level]


def _evidence(row: dict[Any, Any], data: Data, scene: scenes.Scene | None) -> tuple[Evidence, ...]:
    count = int(row["count"])
    facts = [
        Evidence("scene", str(row["scene"])),
        Evidence("failed requests", float(count), "requests", 0.0),
        Evidence("share of requests", 100.0 * count / max(1, data.requests, count), "%", 0.1),
        Evidence("failed stage runs", float(row["events"]), "runs"),
        Evidence("trend", str(row["trend"]) + _change(row["change"])),
        Evidence("first seen", iso(_moment(row["first_seen"]))),
        Evidence("error type", str(row["error_type"]) or "not given"),
        Evidence("message", str(row["example"])[:300]),
    ]
    if int(row["recovered"]):
        facts.append(Evidence("answered all the same", float(row["recovered"]), "requests"))
    facts += [
        Evidence(
            f"set apart by {item['name']}", str(item["value"]), f"{item['share']:.0%} of these", f"{item['usual']:.0%}"
        )
        for item in row["apart"]
    ]
    if scene:
        facts.append(Evidence("metric to watch", scene.metric))
    return tuple(facts)


def _change(change: Any) -> str:
    return (
        ""
        if change is None or pd.isna(change) or math.isinf(change)
        else f" ({change:+.0%} a request against the window before)"
    )


def _new_fix(row: dict[Any, Any]) -> str:
    return (
        f"Read one of the traces, repeat the smallest request that fails ({row['stage']} in {row['service'] or 'the service'}), "
        "isolate one variable, then handle this error where it is raised and give it an error type of its own."
    )


def _verify(row: dict[Any, Any], scene: scenes.Scene | None) -> str:
    own = f"cluster {row['cluster_id']} stays empty for 24 h under the same traffic"
    return f"{scene.verify} Then {own}." if scene else f"Repeat the failing request: it is answered. Then {own}."


def _query(cluster: str, window: Window) -> str:
    return (
        "SELECT Timestamp, TraceId, Stage, Tool, UserTier, Version, ErrorType, Message FROM failures FINAL "
        f"WHERE ClusterId = '{cluster}' AND Echo = 0 AND Timestamp >= '{window.start.astimezone(UTC):%Y-%m-%d %H:%M:%S}' "
        f"AND Timestamp < '{window.end.astimezone(UTC):%Y-%m-%d %H:%M:%S}' ORDER BY Timestamp DESC LIMIT 20"
    )


def _moment(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (
        (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).floor("us").to_pydatetime()
    )
    return moment


ANALYZER = Analyzer("failure", load, find)
