"""Is B better than A? Two windows, versions or arms, on matched work and dimensions, with intervals and a verdict.

Must stay true: runs without a match on the other side are left out and counted, never compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analytics.dimensions import COLUMNS
from analytics.findings import Window
from analytics.rollups import ROOT
from analytics.stages import ns
from analytics.stages_sql import statement
from analytics.stats import Z99, Estimate, Sample, bootstrap_mean, bootstrap_quantiles, difference, rate_difference
from ingest.store import Store

MATCHED = ("stage", "region", "device", "user_tier")
WORK = ("input_tokens", "output_tokens", "payload_bytes", "items")
LEVELS = np.array([0.5, 0.95, 0.99])
NAMES = ("p50_ms", "p95_ms", "p99_ms")
MAX_RUNS = 100_000
ENOUGH = 100
LEAST_MEAN = 30
LEAST_CELL = 5
QUALITY = ("retries", "degraded", "fallback")
OUTSIDE = 0.01
ROUNDS = 500
BLOCKS = 40
LEAST_CHANGE = 0.02
SAME_WITHIN = 0.10
ERRORS_SAME_WITHIN = 0.02
BETTER, WORSE, SAME, UNSURE = "better", "worse", "no difference", "not enough data"


@dataclass(frozen=True, slots=True)
class Side:
    """One side: a window and the values its runs must have, by dimension name (`version`, `region` …)."""

    window: Window
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A. `a`, `b`: quantiles in ms; `change`: B − A in ms (99 % intervals); `errors`: rate B − rate A;
    `matched`: runs used; `quality`: retries, degraded and fallback answers a run, B − A, where both sides report them;
    `mean`: B − A in ms (at least 30 matched runs a side)."""

    verdict: str
    reason: str
    runs: tuple[int, int]
    matched: tuple[int, int]
    a: Mapping[str, float]
    b: Mapping[str, float]
    change: Mapping[str, Estimate]
    errors: Estimate
    quality: Mapping[str, Estimate] = field(default_factory=dict)
    mean: Estimate | None = None


def compare_own(store: Store, a: Side, b: Side, stage: str, ignore: Sequence[str] = ()) -> Comparison:
    """As `compare` for the stage's own time (without its children), not matched on the columns in `ignore`."""
    return judge(_load(store, a, stage, own=1), _load(store, b, stage, own=1), [*ignore, *_meant(a, b)])


def compare(store: Store, a: Side, b: Side, stage: str | None = None) -> Comparison:
    """Compare two sides over one stage, or over whole requests. At most 100,000 runs a side, whole traces sampled.

    A name in `where` that is no dimension is an attribute key, such as an experiment's arm: traces with a span that carries it.
    """
    return judge(_load(store, a, stage), _load(store, b, stage), _meant(a, b))


def _meant(a: Side, b: Side) -> list[str]:
    """What the sides differ in by intent cannot be matched on."""
    return [name for name in MATCHED if name in a.where or name in b.where]


def _load(store: Store, side: Side, stage: str | None, own: int = 0) -> pd.DataFrame:
    values: dict[str, str] = {}
    tests = ["1"]
    for number, (name, value) in enumerate(sorted(side.where.items())):
        values[f"w{number}"] = value
        if name in COLUMNS:
            tests.append(f"{COLUMNS[name]} = {{w{number}:String}}")
        else:
            values[f"k{number}"] = name
            tests.append(statement("compare_arm.sql", key=f"{{k{number}:String}}", value=f"{{w{number}:String}}"))
    bounds: dict[str, Any] = {"low": ns(side.window.start), "high": ns(side.window.end), "own": own}
    count = int(
        store.rough(
            statement("dimensions_count.sql", table="stage_runs"),
            low=bounds["low"],
            high=bounds["high"],
            most=MAX_RUNS + 1,
        )
    )
    text = statement("compare_runs.sql", root=ROOT, where=" AND ".join(tests))
    found = store.read(text, stage=stage or "", sample=1, **bounds, **values) if count <= MAX_RUNS else None
    if found is None:
        sample = _sample(store, text, stage, {**bounds, **values})
        found = store.read(text, stage=stage or "", sample=sample, **bounds, **values)
    return (
        found
        if len(found)
        else pd.DataFrame(columns=["at_ns", "duration_ns", "failed", *QUALITY, *MATCHED, "version", *WORK])
    )


def _sample(store: Store, text: str, stage: str | None, params: Mapping[str, Any]) -> int:
    runs = int(store.value(f"SELECT count() FROM ({text})", stage=stage or "", sample=1, **params))
    return 1 + runs // MAX_RUNS


def judge(a: pd.DataFrame, b: pd.DataFrame, ignore: Sequence[str] = ()) -> Comparison:
    """Pure part; frames as compare_runs.sql gives them. Latency is that of successful runs. Columns in
    `ignore` are not matched on: what the change itself moves."""
    a, b = (side.assign(**dict.fromkeys(ignore, "")) for side in (a, b))
    cells_a, cells_b = _cells(a, b)
    common = _common(cells_a[a["failed"] == 0], cells_b[b["failed"] == 0])
    places_a, places_b = _cells(a, b, ())  # a run that failed often did not come to declare its work
    shared = _common(places_a, places_b)
    errors = rate_difference(*_failed(a, places_a, shared), *_failed(b, places_b, shared), Z99)
    quality = _quality(a[places_a.isin(list(shared))], b[places_b.isin(list(shared))])
    sample_a, sample_b = _weighted(a, cells_a, common), _weighted(b, cells_b, common)
    matched = len(sample_a.values), len(sample_b.values)
    mean = None
    if min(matched) >= LEAST_MEAN:
        mean = difference(bootstrap_mean(sample_a, ROUNDS), bootstrap_mean(sample_b, ROUNDS, seed=7), OUTSIDE)
    if min(matched) < ENOUGH:
        reason = f"{matched[0]} and {matched[1]} matched runs; at least {ENOUGH} a side are needed"
        return Comparison(UNSURE, reason, (len(a), len(b)), matched, {}, {}, {}, errors, quality, mean)
    found_a = bootstrap_quantiles(sample_a, LEVELS, ROUNDS)
    found_b = bootstrap_quantiles(sample_b, LEVELS, ROUNDS, seed=7)
    change = {
        name: difference((float(found_a[0][i]), found_a[1][:, i]), (float(found_b[0][i]), found_b[1][:, i]), OUTSIDE)
        for i, name in enumerate(NAMES)
    }
    before = dict(zip(NAMES, found_a[0].tolist(), strict=True))
    after = dict(zip(NAMES, found_b[0].tolist(), strict=True))
    verdict, reason = _verdict(before, change, errors)
    return Comparison(verdict, reason, (len(a), len(b)), matched, before, after, change, errors, quality, mean)


def _quality(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Estimate]:
    """Means a run, B − A with 99 % intervals (Welch), of what both sides report; not part of the verdict."""
    out: dict[str, Estimate] = {}
    for name in QUALITY:
        one, two = (side[name].dropna().to_numpy(float) if name in side else np.zeros(0) for side in (a, b))
        if min(len(one), len(two)) >= ENOUGH:
            error = Z99 * float(np.sqrt(one.var() / len(one) + two.var() / len(two)))
            value = float(two.mean() - one.mean())
            out[name] = Estimate(value, value - error, value + error)
    return out


def _failed(runs: pd.DataFrame, places: pd.Series, shared: Mapping[str, float]) -> tuple[float, float]:
    """Failures and runs, where each place weighs what it has on both sides; weights make as many runs as are worth the same
    (Kish's effective sample size)."""
    used = places.isin(list(shared))
    mine = places[used]
    weights = mine.map(shared).to_numpy(float) / mine.map(mine.value_counts()).to_numpy(float)
    if not len(weights):
        return 0.0, 0.0
    worth = float(weights.sum() ** 2 / (weights**2).sum())
    return worth * float(np.average(runs["failed"][used].to_numpy(float), weights=weights)), worth


def _cells(a: pd.DataFrame, b: pd.DataFrame, work: Sequence[str] = WORK) -> tuple[pd.Series, pd.Series]:
    """A name for each run's kind of work: its dimensions, and its declared work within a factor of two."""
    both = pd.concat([a, b], ignore_index=True)
    keys = pd.Series(np.full(len(both), "", object), dtype=object)
    for name in MATCHED:
        keys = keys + "\x1f" + both[name].astype(str)
    for name in work:
        values = pd.to_numeric(both[name], errors="coerce")
        if values.notna().any() and values.nunique() > 1:
            keys = (
                keys + "\x1f" + values.clip(lower=0).add(1).map(np.log2).floordiv(1).fillna(-1).astype(int).astype(str)
            )
    return keys.iloc[: len(a)].set_axis(a.index), keys.iloc[len(a) :].set_axis(b.index)


def _common(cells_a: pd.Series, cells_b: pd.Series) -> dict[str, float]:
    """Runs of both sides together by cell, for the cells that have at least LEAST_CELL on each side."""
    count_a, count_b = cells_a.value_counts(), cells_b.value_counts()
    shared = count_a.index.intersection(count_b.index)
    return {
        str(cell): float(count_a[cell] + count_b[cell])
        for cell in shared
        if min(count_a[cell], count_b[cell]) >= LEAST_CELL
    }


def _weighted(runs: pd.DataFrame, cells: pd.Series, common: Mapping[str, float]) -> Sample:
    """The successful runs that have a match; in each cell both sides weigh as much as the cell has runs in all."""
    used = runs[(runs["failed"] == 0) & cells.isin(list(common))]
    mine = cells[used.index]
    weights = mine.map(common).to_numpy(float) / mine.map(mine.value_counts()).to_numpy(float)
    at = used["at_ns"].to_numpy(np.int64)
    block_ns = max(60_000_000_000, int(np.ptp(at)) // BLOCKS) if len(at) else 60_000_000_000
    return Sample(used["duration_ns"].to_numpy(float) / 1e6, weights, at // block_ns)


def _verdict(before: Mapping[str, float], change: Mapping[str, Estimate], errors: Estimate) -> tuple[str, str]:
    """Worse or better when p95 (else p50), or the error rate, differs surely and by 2 % or more; the same when p50 and p95 surely
    differ by less than 10 % and errors by less than 2 in a hundred. Three 99 % intervals: 3 % of equal sides are called different at most."""
    if errors.low > 0:
        return WORSE, f"errors rise by {errors.value:.2%} ({errors.low:.2%} to {errors.high:.2%})"
    for name in ("p95_ms", "p50_ms"):
        found = change[name]
        words = f"{name[:-3]} changes by {found.value:+.1f} ms ({found.low:+.1f} to {found.high:+.1f})"
        if abs(found.value) >= LEAST_CHANGE * before[name] and (found.low > 0 or found.high < 0):
            return (WORSE if found.low > 0 else BETTER), words
    if errors.high < 0:
        return BETTER, f"errors fall by {-errors.value:.2%} ({-errors.high:.2%} to {-errors.low:.2%})"
    close = all(max(-change[n].low, change[n].high) < SAME_WITHIN * before[n] for n in ("p50_ms", "p95_ms"))
    if close and max(-errors.low, errors.high) < ERRORS_SAME_WITHIN:
        return SAME, f"p50 and p95 differ by less than {SAME_WITHIN:.0%}, errors by less than {ERRORS_SAME_WITHIN:.0%}"
    found = change["p95_ms"]
    return UNSURE, f"p95 changes by {found.value:+.1f} ms, but {found.low:+.1f} to {found.high:+.1f} are possible"
