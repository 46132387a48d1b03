"""Which dimension values, attributes and pairs of values set the slow (or failed) runs apart: how much more often, how surely.

Must stay true: the size of the effect ranks, not how frequent a value is, and chance is allowed for over all values looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analytics.dimensions import COLUMNS
from analytics.findings import Window
from analytics.rollups import ROOT
from analytics.stages import ns
from analytics.stages_sql import statement
from analytics.stats import false_discovery, rate_ratios
from ingest.store import Store

DIMENSIONS = {
    name: COLUMNS[name]
    for name in ("service", "tier", "model", "tool", "region", "device", "user_tier", "version", "host")
}
NAMES = "dimension value runs hits rate rest_rate ratio ratio_low ratio_high difference share_of_hits q_value significant thin".split()
THIN = 100
LEAST_RUNS = 20
MAX_Q = 0.05
LEAST_RATIO = 1.1
PAIR_GAIN = 1.3
MAX_ATTRIBUTE_RUNS = 200_000


def explain(
    store: Store,
    stage: str | None = None,
    slower_than_ms: float | None = None,
    failed: bool = False,
    window: Window | None = None,
) -> pd.DataFrame:
    """One row a value (`dimension`, `value`; pairs as `a × b`), those that set the hits apart first.

    Hits: failed runs, or successful runs slower than the limit (default: their own p95, in `attrs["slower_than_ms"]`).
    Without a stage whole requests are looked at. `rate` is hits per run inside the slice, `rest_rate` outside it, `ratio`
    with its 95 % interval; `q_value` after Benjamini-Yekutieli over all rows; `significant`: q < 0.05 and the interval
    above 1.1 (or wholly below 0.9); `thin`: fewer than 100 runs.
    """
    spans = window or Window(
        pd.Timestamp(0, tz="UTC").to_pydatetime(), pd.Timestamp("2200-01-01", tz="UTC").to_pydatetime()
    )
    bounds: dict[str, Any] = {"low": ns(spans.start), "high": ns(spans.end), "stage": stage or ""}
    limit_ns = 0
    if not failed:
        limit_ns = int(slower_than_ms * 1e6) if slower_than_ms is not None else _p95(store, bounds)
    bounds |= {"failed": int(failed), "limit": limit_ns}
    hit = "Failed" if failed else "Duration > {limit:UInt64}"
    columns = ", ".join(f"toString({column}) AS {name}" for name, column in DIMENSIONS.items())
    cells = store.read(statement("explain_runs.sql", columns=columns, hit=hit, root=ROOT), **bounds)
    out = find(cells, _attributes(store, cells, hit, bounds)) if len(cells) else pd.DataFrame(columns=NAMES)
    out.attrs["slower_than_ms"] = limit_ns / 1e6 if not failed else None
    return out


def _p95(store: Store, bounds: dict[str, Any]) -> int:
    value = store.value(statement("explain_threshold.sql", root=ROOT), **bounds)
    return int(value) if value is not None and np.isfinite(value) else 0


def _attributes(store: Store, cells: pd.DataFrame, hit: str, bounds: dict[str, Any]) -> pd.DataFrame:
    """Counts by attribute value, scaled to nothing: from one trace in `sample`, with the sample's own totals."""
    sample = 1 + int(cells["runs"].sum()) // MAX_ATTRIBUTE_RUNS
    return store.read(
        statement("explain_attributes.sql", hit=hit, root=ROOT), sample=sample, least=LEAST_RUNS, **bounds
    )


def find(cells: pd.DataFrame, attributes: pd.DataFrame) -> pd.DataFrame:
    """Pure part. `cells`: dimension columns, `hit`, `runs`; `attributes`: `dimension, value, runs, hits` (may be empty)."""
    cells = cells.assign(hits=cells["runs"] * cells["hit"].astype(int))
    names = [name for name in DIMENSIONS if name in cells and cells[name].nunique() > 1]
    singles = pd.concat([_counts(cells, [name]) for name in names], ignore_index=True) if names else _none()
    pairs = [_counts(cells, list(pair)) for pair in combinations(names, 2)]
    totals = int(cells["hits"].sum()), int(cells["runs"].sum())
    rows = [_rated(singles, *totals)]
    rows += [_interactions(_rated(pd.concat(pairs, ignore_index=True), *totals), rows[0])] if pairs else []
    rows += [_new_attributes(attributes, singles, totals)]
    found = pd.concat([part for part in rows if len(part)] or [_rated(_none(), *totals)], ignore_index=True)
    return _judged(found, totals[0])


def _none() -> pd.DataFrame:
    return pd.DataFrame({"dimension": [], "value": [], "runs": np.zeros(0, int), "hits": np.zeros(0, int)})


def _counts(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    known = cells[np.logical_and.reduce([cells[name] != "" for name in names])]
    sums = known.groupby(list(names), sort=True)[["runs", "hits"]].sum().reset_index()
    sums = sums[sums["runs"] >= LEAST_RUNS]
    value = (
        sums[names[0]]
        if len(names) == 1
        else sums[list(names)].agg(" × ".join, axis=1)
        if len(sums)
        else sums[names[0]]
    )
    return pd.DataFrame({"dimension": " × ".join(names), "value": value, "runs": sums["runs"], "hits": sums["hits"]})


def _rated(counts: pd.DataFrame, all_hits: int, all_runs: int) -> pd.DataFrame:
    counts = counts[counts["runs"] < all_runs]
    hits, runs = counts["hits"].to_numpy(np.int64), counts["runs"].to_numpy(np.int64)
    found = rate_ratios(hits, runs, all_hits, all_runs)
    return counts.assign(
        rate=hits / np.maximum(runs, 1),
        rest_rate=(all_hits - hits) / np.maximum(all_runs - runs, 1),
        ratio=found.ratio,
        ratio_low=found.low,
        ratio_high=found.high,
        difference=found.difference,
        p_value=found.p_value,
    )


def _interactions(pairs: pd.DataFrame, singles: pd.DataFrame) -> pd.DataFrame:
    """Pairs whose rate is well above what either value alone shows; the others say nothing new."""
    rate = dict(zip(zip(singles["dimension"], singles["value"], strict=True), singles["rate"], strict=True))
    alone = [
        max(rate.get(key, 0.0) for key in zip(dimension.split(" × "), value.split(" × "), strict=False))
        for dimension, value in zip(pairs["dimension"].astype(str), pairs["value"].astype(str), strict=True)
    ]
    error = np.sqrt(pairs["rate"] * (1 - pairs["rate"]) / pairs["runs"])
    return pairs[(pairs["rate"] - 2 * error) > PAIR_GAIN * np.array(alone)] if len(pairs) else pairs


def _new_attributes(attributes: pd.DataFrame, singles: pd.DataFrame, totals: tuple[int, int]) -> pd.DataFrame:
    """Attributes that say more than a dimension does; totals are those of the attribute's own values."""
    if not len(attributes):
        return _none()
    known = set(zip(singles["value"], singles["runs"].astype(int), singles["hits"].astype(int), strict=True))
    parts = []
    for _, group in attributes.groupby("dimension", sort=True):
        hits, runs = int(group["hits"].sum()), int(group["runs"].sum())
        fresh = [
            (v, int(r), int(h)) not in known
            for v, r, h in zip(group["value"], group["runs"], group["hits"], strict=True)
        ]
        if len(group) > 1 and hits:
            parts.append(_rated(group[fresh], hits, runs))
    return pd.concat(parts, ignore_index=True) if parts else _none()


def _judged(found: pd.DataFrame, all_hits: int) -> pd.DataFrame:
    q_value = false_discovery(found["p_value"].to_numpy(float)) if len(found) else np.zeros(0)
    apart = (found["ratio_low"] > LEAST_RATIO) | (found["ratio_high"] < 2 - LEAST_RATIO)
    found = found.assign(
        share_of_hits=found["hits"] / max(all_hits, 1),
        q_value=q_value,
        significant=apart & (q_value < MAX_Q),
        thin=found["runs"] < THIN,
    )
    order = found.assign(
        group=np.where(found["significant"] & (found["ratio"] > 1), 0, np.where(found["significant"], 1, 2)),
        strength=np.where(found["ratio"] > 1, found["ratio_low"], 1 / np.maximum(found["ratio_high"], 1e-9)),
    ).sort_values(["group", "strength", "runs", "dimension", "value"], ascending=[True, False, False, True, True])
    return order[NAMES].reset_index(drop=True)
