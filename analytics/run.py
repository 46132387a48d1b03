"""Runs the analyzers over a window and keeps what they found. A finding keeps its `first_seen`; one that is gone is written as resolved.

Must stay true: an analyzer is named after the kind of its findings, so that it resolves its own and no others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pandas as pd

from analytics import failures, health, slow
from analytics.findings import Analyzer, Finding, Window, iso
from ingest.errors import BadSetting
from ingest.store import Store

ANALYZERS: tuple[Analyzer, ...] = (slow.ANALYZER, failures.ANALYZER, health.ANALYZER)
SEVERITY_ORDER = {"critical": 0, "high": 1, "medium": 2, "low": 3}
MIN_RUNS_TO_RESOLVE = 30
_SPAN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\s*$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one analyzer did: its findings, rows looked at, seconds taken, and a note on what it could not judge."""

    analyzer: str
    findings: tuple[Finding, ...]
    rows_read: int
    seconds: float
    note: str


def last(text: str, now: datetime | None = None) -> Window:
    """The window of `--last 7d` (units s m h d w) that ends now. Raises BadSetting."""
    found = _SPAN.match(text)
    if not found or float(found[1]) <= 0:
        raise BadSetting("last", text, "a length of time such as 30m, 24h or 7d")
    end = now or datetime.now(UTC)
    return Window(end - timedelta(seconds=float(found[1]) * _UNIT_S[found[2]]), end)


def between(start: str, end: str | None = None, now: datetime | None = None) -> Window:
    """The window of `--from T --to T` (ISO 8601, UTC where no zone is given; no end means now). Raises BadSetting."""
    first = _moment("from", start)
    final = _moment("to", end) if end else (now or datetime.now(UTC))
    if final <= first:
        raise BadSetting("to", end or iso(final), f"a time after {iso(first)}")
    return Window(first, final)


def covering(store: Store) -> Window | None:
    """The window that holds every stage run in the store; None when there is none."""
    row = store.read("SELECT count() AS n, min(Timestamp) AS first, max(Timestamp) AS final FROM stage_runs").iloc[0]
    if not int(row["n"]):
        return None
    return Window(_utc(row["first"]), _utc(row["final"]) + timedelta(seconds=1))


def run(
    store: Store, window: Window, analyzers: Sequence[Analyzer] | None = None, now: datetime | None = None
) -> list[Finding]:
    """Run the analyzers (default: all) over `window`, store findings and one row a run, and return them, worst first."""
    moment = now or datetime.now(UTC)
    chosen = ANALYZERS if analyzers is None else tuple(analyzers)
    before = {finding.key: finding for finding in latest(store, resolved=True)}
    outcomes = [_outcome(analyzer, store, window, moment) for analyzer in chosen]
    found = [_carry(finding, before.get(finding.key)) for outcome in outcomes for finding in outcome.findings]
    gone = _resolved(store, window, before, found, outcomes)
    _save(store, moment, window, [*found, *gone])
    _note_runs(store, moment, window, outcomes)
    return sorted(found, key=worst_first)


def latest(store: Store, kind: str | None = None, *, resolved: bool = False) -> list[Finding]:
    """The newest word on every finding ever made, worst first; those resolved only on request."""
    frame = store.read(
        "SELECT Key, argMax(Body, RunAt) AS Body FROM findings "
        "WHERE {kind:String} = '' OR Kind = {kind:String} GROUP BY Key",
        kind=kind or "",
    )
    bodies: list[str] = frame["Body"].tolist() if len(frame) else []
    found = [Finding.from_json(orjson.loads(body)) for body in bodies]
    return sorted((item for item in found if resolved or item.state != "resolved"), key=worst_first)


def worst_first(finding: Finding) -> tuple[int, float, str]:
    """Sorting key: severity, then seconds lost, then key."""
    return SEVERITY_ORDER.get(finding.severity, len(SEVERITY_ORDER)), -finding.lost_seconds, finding.key


def _outcome(analyzer: Analyzer, store: Store, window: Window, moment: datetime) -> Outcome:
    begun = time.monotonic()
    data = analyzer.load(store, window)
    findings = tuple(analyzer.find(data))
    if analyzer.keep is not None:
        analyzer.keep(store, data, moment)
    rows, note = int(getattr(data, "rows_read", 0)), str(getattr(data, "note", ""))
    return Outcome(analyzer.name, findings, rows, time.monotonic() - begun, note)


def _carry(finding: Finding, earlier: Finding | None) -> Finding:
    if earlier is None:
        return finding
    return replace(
        finding,
        first_seen=min(finding.first_seen, earlier.first_seen),
        last_seen=max(finding.last_seen, earlier.last_seen),
        state="reopened" if earlier.state == "resolved" else finding.state,
    )


def _resolved(
    store: Store, window: Window, before: dict[str, Finding], found: Sequence[Finding], outcomes: Sequence[Outcome]
) -> list[Finding]:
    """Earlier findings whose subject was looked at again, later, with enough runs, and was in order."""
    kinds = {outcome.analyzer for outcome in outcomes if outcome.rows_read}
    keys = {finding.key for finding in found}
    open_before = [
        item
        for item in before.values()
        if item.state != "resolved" and item.key not in keys and item.kind in kinds and window.end > item.window.end
    ]
    if not open_before:
        return []
    runs = _runs_by_stage(store, window)
    return [
        replace(item, state="resolved", window=window)
        for item in open_before
        if not item.subject.get("stage")
        or runs.get((item.subject.get("service", ""), item.subject["stage"]), 0) >= MIN_RUNS_TO_RESOLVE
    ]


def _runs_by_stage(store: Store, window: Window) -> dict[tuple[str, str], int]:
    frame = store.read(
        "SELECT ServiceName, Stage, count() AS n FROM stage_runs "
        "WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)} GROUP BY ServiceName, Stage",
        start=window.start,
        end=window.end,
    )
    if not len(frame):
        return {}
    names = zip(frame["ServiceName"].astype(str), frame["Stage"].astype(str), strict=True)
    return dict(zip(names, frame["n"].astype(int).tolist(), strict=True))


def _save(store: Store, moment: datetime, window: Window, findings: Sequence[Finding]) -> None:
    rows = [_row(moment, window, finding) for finding in findings]
    if rows:
        store.insert("findings", pd.DataFrame(rows))


def _row(moment: datetime, window: Window, finding: Finding) -> dict[str, Any]:
    return {
        "RunAt": pd.Timestamp(moment).floor("ms"),
        "WindowFrom": pd.Timestamp(window.start).floor("ms"),
        "WindowTo": pd.Timestamp(window.end).floor("ms"),
        "Key": finding.key,
        "Kind": finding.kind,
        "Cause": finding.cause,
        "ServiceName": finding.subject.get("service", ""),
        "Stage": finding.subject.get("stage", ""),
        "Severity": finding.severity,
        "LostSeconds": finding.lost_seconds,
        "LostLow": finding.lost_low,
        "LostHigh": finding.lost_high,
        "Requests": finding.requests,
        "Users": finding.users,
        "Title": finding.title,
        "Body": orjson.dumps(finding.to_json()).decode(),
    }


def _note_runs(store: Store, moment: datetime, window: Window, outcomes: Sequence[Outcome]) -> None:
    rows = [
        {
            "RunAt": pd.Timestamp(moment).floor("ms"),
            "WindowFrom": pd.Timestamp(window.start).floor("ms"),
            "WindowTo": pd.Timestamp(window.end).floor("ms"),
            "Analyzer": outcome.analyzer,
            "Findings": len(outcome.findings),
            "RowsRead": outcome.rows_read,
            "Seconds": outcome.seconds,
            "Note": outcome.note,
        }
        for outcome in outcomes
    ]
    if rows:
        store.insert("analyzer_runs", pd.DataFrame(rows))


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise BadSetting(name, text, "a time such as 2026-11-30T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).to_pydatetime(
        warn=False
    )
    return moment
