"""Is a problem really gone? Compared on matched traffic: what the old rate would have brought against what came.

Must stay true: silence is no proof. Without enough of the same traffic the answer is `thin`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pandas as pd

from analytics.compare import Side, compare_own
from analytics.failures_load import CLUSTER, FROM, representatives
from analytics.findings import Finding, Window
from analytics.tickets_plan import Proof, Ticket
from ingest.store import Store

LEAST_EXPECTED = 6.0
LEAST_RUNS = 30
MOVED_BY_FIX = {
    "prompt_bloat": ("input_tokens", "items"),
    "payload": ("payload_bytes",),
    "redundant_step": ("input_tokens", "output_tokens"),
    "retry": ("input_tokens", "output_tokens"),
    "oversized_model": ("input_tokens", "output_tokens"),
}
SETTLE = timedelta(hours=24)
_STRATA = "Tool, Region, UserTier"
_SPAN = "Timestamp > {start:DateTime64(9)} AND Timestamp <= {end:DateTime64(9)}"


def proofs(store: Store, tickets: Sequence[Ticket], now: datetime) -> dict[str, Proof]:
    """A verdict for each ticket whose problem is not among the findings any more."""
    out: dict[str, Proof] = {}
    for ticket in tickets:
        if ticket.finding:
            finding = Finding.from_json(dict(ticket.finding))
            out[ticket.key] = _proof(store, finding, now)
    return out


def _proof(store: Store, finding: Finding, now: datetime) -> Proof:
    if finding.kind == "failure":
        return _failure(store, finding, now)
    if finding.subject.get("stage"):
        return _stage(store, finding, now)
    return _looked(store, finding, now)


def _failure(store: Store, finding: Finding, now: datetime) -> Proof:
    """Expected failures of the traffic since, at the old rate of each stratum, against those that came (Poisson)."""
    before = _strata(store, finding, finding.window)
    last = _last_failure(store, finding, now)
    old = _failures(store, finding, finding.window)
    answers = []
    for start in (max(last, finding.window.end), now - SETTLE):
        after = Window(start, now)
        if after.seconds <= 0:
            continue
        expected = _expected(before, old, _strata(store, finding, after))
        came = _failures(store, finding, after)
        seen = int(came["n"].sum()) if len(came) else 0
        answers.append(judge(expected, seen, start))
    better = [item for item in answers if item.verdict == "better"]
    return (better or answers or [Proof("thin", "no time has passed since it was last seen")])[0]


def judge(expected: float, seen: int, since: datetime) -> Proof:
    """`better` at a fifth or less of what the old rate would bring, three standard errors away."""
    text = f"{expected:.0f} failures expected at the old rate on the same mix of traffic, {seen} seen"
    if expected < LEAST_EXPECTED and seen < LEAST_EXPECTED:
        return Proof("thin", f"{text}; too little traffic to tell", since)
    z = (expected - seen) / math.sqrt(max(1.0, expected + seen))
    if z > 2.4 and seen <= 0.2 * expected:
        return Proof("better", text, since)
    return Proof("worse" if z < -3 else "same", text, since)


def _expected(before: pd.DataFrame, failed: pd.DataFrame, after: pd.DataFrame) -> float:
    if not len(before) or not len(after) or not len(failed):
        return 0.0
    keys = [name.strip() for name in _STRATA.split(",")]
    both = after.merge(before, on=keys, suffixes=("", "_old"), how="left").merge(
        failed, on=keys, suffixes=("", "_bad"), how="left"
    )
    rate = (both["n_bad"].fillna(0.0) / both["n_old"]).where(both["n_old"] > 0, 0.0).fillna(0.0)
    return float((both["n"] * rate.clip(upper=1.0)).sum())


def _strata(store: Store, finding: Finding, window: Window) -> pd.DataFrame:
    return store.read(
        f"SELECT {_STRATA}, count() AS n, avg(Took) AS mean, varSamp(Took) AS spread FROM (SELECT *, "
        "if(Kind = 'gap', Duration, SelfTime) / 1e9 AS Took FROM stage_runs WHERE Stage = {stage:String} "
        "AND ({service:String} = '' OR ServiceName = {service:String}) "
        f"AND {_SPAN}) GROUP BY {_STRATA}",
        stage=finding.subject.get("stage", ""),
        service=finding.subject.get("service", ""),
        start=window.start,
        end=window.end,
    )


def _cluster_params(store: Store, finding: Finding) -> dict[str, Any]:
    names = representatives(store)
    return {
        "olds": list(names) or [""],
        "news": list(names.values()) or [""],
        "cluster": names.get(finding.subject.get("cluster", ""), finding.subject.get("cluster", "")),
    }


def _failures(store: Store, finding: Finding, window: Window) -> pd.DataFrame:
    return store.read(
        f"SELECT f.Tool AS Tool, f.Region AS Region, f.UserTier AS UserTier, uniqExact(f.TraceId) AS n FROM {FROM} "
        f"WHERE f.Echo = 0 AND {_SPAN.replace('Timestamp', 'f.Timestamp')} AND {CLUSTER} = {{cluster:String}} "
        "GROUP BY Tool, Region, UserTier",
        start=window.start,
        end=window.end,
        **_cluster_params(store, finding),
    )


def _last_failure(store: Store, finding: Finding, now: datetime) -> datetime:
    found = store.read(
        f"SELECT max(f.Timestamp) AS last, count() AS n FROM {FROM} WHERE f.Echo = 0 AND f.Timestamp <= {{now:DateTime64(9)}} "
        f"AND {CLUSTER} = {{cluster:String}}",
        now=now,
        **_cluster_params(store, finding),
    ).iloc[0]
    if not int(found["n"]):
        return finding.last_seen
    stamp = pd.Timestamp(found["last"])
    moment: datetime = (stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp).ceil("ms").to_pydatetime()
    return moment


def _stage(store: Store, finding: Finding, now: datetime) -> Proof:
    """The stage's own time now against then, on matched traffic and work (compare.py), 99 % sure; work that the fix itself
    moves is not matched on."""
    since = max(_last_flagged(store, finding), finding.window.end)
    where = {"service": finding.subject["service"]} if finding.subject.get("service") else {}
    sides = Side(finding.window, where), Side(Window(since, now), where)
    found = compare_own(store, *sides, finding.subject["stage"], MOVED_BY_FIX.get(finding.cause, ()))
    runs = min(found.matched)
    if found.mean is None:
        seen = f"{runs} runs of the same traffic since {since:%Y-%m-%d %H:%M} UTC; at least {LEAST_RUNS} are needed"
        return Proof("thin", seen, since)
    excess = finding.expected_saving_ms or 1000 * finding.lost_seconds / max(1, finding.requests)
    gained = -found.mean.value
    text = (
        f"{gained:,.0f} ms a run faster ({-found.mean.high:,.0f} to {-found.mean.low:,.0f}) on the same traffic and work, "
        f"{found.matched[1]:,} runs, where {excess:,.0f} ms was at stake"
    )
    if gained > 0.5 * excess and found.mean.high < 0 and found.errors.low <= 0:
        return Proof("better", text, since)
    return Proof("worse" if found.mean.low > 0.2 * excess else "same", text, since)


def _last_flagged(store: Store, finding: Finding) -> datetime:
    value = store.value(
        "SELECT max(WindowTo) FROM findings WHERE Key = {key:String} AND JSONExtractString(Body, 'state') != 'resolved'",
        key=finding.key,
    )
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp).to_pydatetime(warn=False)
    return moment


def _looked(store: Store, finding: Finding, now: datetime) -> Proof:
    """Problems of no stage: the same analyzer looked again, had rows to read, and found it no more."""
    since = max(_last_flagged(store, finding), finding.window.end)
    runs = int(
        store.value(
            "SELECT count() FROM analyzer_runs WHERE Analyzer = {kind:String} AND RowsRead > 0 AND WindowTo > {since:DateTime64(3)} "
            "AND WindowTo <= {now:DateTime64(3)}",
            kind=finding.kind,
            since=since,
            now=now,
        )
    )
    if runs < 2:
        return Proof("thin", f"looked at {runs} times since {since:%Y-%m-%d %H:%M} UTC", since)
    return Proof("better", f"not found in {runs} analyses since {since:%Y-%m-%d %H:%M} UTC", since)
