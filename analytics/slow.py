"""Slow without reason: stages whose time neither their work, nor their waiting, nor their purpose justifies.

Must stay true: a stage is named only when the interval of its loss excludes nothing-to-gain. docs/slow.md has the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from analytics.expectation import Expectation, learn
from analytics.expectation_store import remember
from analytics.findings import Analyzer, Finding, finding_key
from analytics.slow_evidence import effect_for, evidence
from analytics.slow_load import MAX_RUNS_PER_STAGE, Data, load
from analytics.slow_residual import MEASURED_CAUSES, Loss, first_cause, interval, losses, lost_seconds
from analytics.slow_say import query_of, say
from analytics.slow_stage import Array, Stage, stages
from analytics.slow_waste import smallest
from ingest.store import Store

MIN_TRACES = 200
MIN_LOSS_MS = 10.0
MIN_LOSS_SHARE = 0.015
HIT_SHARE, HIT_DEPTH = 0.03, 0.08
OWN_SHARE, UNKNOWN_OWN_SHARE, OWN_LOSS_MS, MIN_HITS = 0.25, 0.5, 20.0, 60
SECOND_SHARE = 0.4
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Traffic:
    """All traces of the window: how many; of a sample of whole ones the end-to-end ms without declared waits: mean, p95, by trace."""

    traces: int
    mean_ms: float
    p95_ms: float
    trace_ms: dict[str, float]


def find(data: Data) -> Sequence[Finding]:
    """Findings of kind `slow`, worst first. Fewer than MIN_TRACES traces: none."""
    judged, expectations = _learnt(data)
    if data.traces < MIN_TRACES or not judged:
        return []
    small = smallest(judged, expectations)
    traffic = _traffic(data)
    found: list[Finding] = []
    for stage, expected in zip(judged, expectations, strict=True):
        found += _of_stage(data, traffic, losses(stage, expected, data.need, small))
    return sorted(found, key=lambda item: (-item.lost_low, item.key))


def keep(store: Store, data: Data, now: datetime) -> None:
    """Remember what each stage's work justifies, so that a single trace can be judged (`expectation_store.unjustified`)."""
    judged, expectations = _learnt(data)
    if judged:
        remember(store, now, list(zip(judged, expectations, strict=True)), data.need)


def _learnt(data: Data) -> tuple[list[Stage], list[Expectation]]:
    """The stages that can be judged and what their work justifies, worked out once a window."""
    if "stages" not in data.learnt:
        judged = stages(data)
        data.learnt["stages"] = (judged, learn(judged, data.need))
    found: tuple[list[Stage], list[Expectation]] = data.learnt["stages"]
    return found


def _traffic(data: Data) -> Traffic:
    """End to end without declared waits, from the traces that every stage's sample holds, so that no kind of trace counts twice."""
    runs = data.runs
    if "hash" in runs and len(data.totals):
        whole = MAX_RUNS_PER_STAGE / max(float(data.totals["runs"].max()), 1.0)
        runs = runs[runs["hash"] <= whole]
    by_trace = runs.groupby("trace", sort=True).agg(trace_ms=("trace_ms", "max"), wait_ms=("wait_ms", "sum"))
    times = np.maximum(by_trace["trace_ms"].to_numpy(float) - by_trace["wait_ms"].to_numpy(float), 1.0)
    names = by_trace.index.astype(str)
    return Traffic(
        data.traces, float(times.mean()), float(np.quantile(times, 0.95)), dict(zip(names, times.tolist(), strict=True))
    )


def _of_stage(data: Data, traffic: Traffic, loss: Loss) -> list[Finding]:
    cause, others = first_cause(loss)
    found = []
    if _worth(traffic, loss, cause, MIN_LOSS_SHARE):
        found.append(_finding(data, traffic, loss, cause, others))
    main = float(loss.of(cause).sum())
    for other in others:
        if not found or other == "unknown" or float(loss.of(other).sum()) < SECOND_SHARE * main:
            continue
        if _worth(traffic, loss, other, 2 * MIN_LOSS_SHARE):
            found.append(_finding(data, traffic, loss, other, ()))
    return found


def _worth(traffic: Traffic, loss: Loss, cause: str, share: float) -> bool:
    """Per trace, the lower bound of the loss exceeds max(10 ms, 1.5 % end to end); or some traces lose much of their time; or a
    stage, small as it may be, certainly loses a quarter of its own."""
    stage, lost = loss.stage, loss.of(cause)
    low, _ = interval(stage, lost, cause in MEASURED_CAUSES)
    if low <= 0:
        return False
    if 1e3 * low / traffic.traces > max(MIN_LOSS_MS, share * traffic.mean_ms):
        return True
    deep = lost / np.maximum(stage.fact("trace_ms") - stage.fact("wait_ms"), 1.0) >= HIT_DEPTH
    if float(deep.sum()) * stage.weight / traffic.traces >= HIT_SHARE:
        return True
    usual = loss.expected.usual_ms * stage.on_path
    hit = (lost > (UNKNOWN_OWN_SHARE if cause == "unknown" else OWN_SHARE) * usual) & (lost > OWN_LOSS_MS)
    return float(hit.sum()) * stage.weight / traffic.traces >= HIT_SHARE and int(hit.sum()) >= MIN_HITS


def _finding(data: Data, traffic: Traffic, loss: Loss, cause: str, others: tuple[str, ...]) -> Finding:
    stage, lost = loss.stage, loss.of(cause)
    hit = lost > 0
    effect = effect_for(loss, cause)
    where = effect.feature.name if effect and effect.feature.group in ("dimension", "host", "version") else ""
    low, high = interval(stage, lost, cause in MEASURED_CAUSES)
    seconds = lost_seconds(stage, lost)
    share = _share_of_p95(traffic, loss, lost)
    saving = float(lost[hit].mean())
    words = say(loss, cause, saving, where, data.need)
    times = stage.frame["ts"].to_numpy(float)[hit]
    return Finding(
        key=finding_key("slow", stage.service, stage.name, cause),
        kind="slow",
        subject=_subject(stage, where),
        title=words.title,
        cause=cause,
        severity=_severity(seconds / max(traffic.traces * traffic.mean_ms / 1e3, 1e-9), share),
        lost_seconds=round(seconds, 3),
        lost_low=round(low, 3),
        lost_high=round(high, 3),
        share_of_e2e_p95=round(share, 4),
        requests=round(float(hit.sum()) * stage.weight),
        users=int(stage.frame.loc[hit, "user"].replace("", np.nan).nunique()),
        evidence=evidence(loss, cause, data.need),
        recommendation=words.recommendation,
        effort=words.effort,
        expected_saving_ms=round(saving, 1),
        verify=words.verify,
        trace_ids=_examples(stage, lost),
        window=data.window,
        first_seen=_moment(times.min()),
        last_seen=_moment(times.max()),
        query=query_of(stage, data.window),
        other_causes=others,
    )


def _subject(stage: Stage, where: str) -> dict[str, str]:
    names = {
        "service": stage.service,
        "stage": stage.name,
        "tier": stage.tier,
        "model": stage.model,
        "tool": stage.tool,
    }
    return {**names, "dimension": where}


def _examples(stage: Stage, lost: Array) -> tuple[str, ...]:
    """The traces that lose most, each once."""
    worst = np.argsort(-lost, kind="stable")[: EXAMPLES * 4]
    return tuple(dict.fromkeys(stage.frame["trace"].to_numpy(str)[worst].tolist()))[:EXAMPLES]


def _severity(share_of_time: float, share_of_p95: float) -> str:
    weight = max(share_of_time, share_of_p95)
    for name, floor in (("critical", 0.25), ("high", 0.10), ("medium", 0.03)):
        if weight >= floor:
            return name
    return "low"


def _share_of_p95(traffic: Traffic, loss: Loss, lost: Array) -> float:
    """By how much the p95 of all sampled traces would fall if this loss were gone."""
    gone: dict[str, float] = {}
    for trace, ms in zip(loss.stage.frame["trace"].to_numpy(str), lost.tolist(), strict=True):
        gone[trace] = gone.get(trace, 0.0) + ms
    after = np.array([max(ms - gone.get(trace, 0.0), 0.0) for trace, ms in traffic.trace_ms.items()])
    return max(0.0, 1.0 - float(np.quantile(after, 0.95)) / max(traffic.p95_ms, 1e-9))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


ANALYZER = Analyzer("slow", load, find, keep)
