"""When did a stage change for good? Change points in p50, p99 and error rate of every stage over time.

Must stay true: false alarms are controlled over all stages and measures looked at, and a change too small to matter is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from analytics.findings import Window, iso
from analytics.rollups import ROOT
from analytics.stages import ns
from analytics.stages_sql import statement
from analytics.stats import false_discovery
from ingest.store import Store

Floats = NDArray[np.float64]

BINS_S = (60, 300, 900, 3600, 10_800, 21_600, 86_400)
MOST_BINS = 240
LEAST_BINS = 12
LEAST_SIDE = 4
LEAST_RUNS = 5
LEAST_FOR_P99 = 100
MAX_Q = 0.05
SPLIT_P = 0.01
LEAST_RATIO = 1.1
LEAST_ERRORS = 0.01
MOST_CORRELATED = 0.9
MEASURES = ("p50_ms", "p99_ms", "error_rate")


@dataclass(frozen=True, slots=True)
class Change:
    """One lasting change. `at`: start of the first bin after it; `before`, `after`: medians over the bins on either side
    (ms, or failures per run); `q_value` over everything looked at; `bins`: how many on either side."""

    service: str
    stage: str
    measure: str
    at: datetime
    before: float
    after: float
    q_value: float
    bins: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after, "bins_before": self.bins[0], "bins_after": self.bins[1]}
        names = {"service": self.service, "stage": self.stage, "measure": self.measure, "at": iso(self.at)}
        return names | sides | {"q_value": self.q_value}


@dataclass(frozen=True, slots=True)
class Split:
    """A place to cut a series (index of the first value after it) with its p-value."""

    place: int
    p_value: float


def bin_seconds(window: Window) -> int:
    """The shortest bin that cuts the window into at most 240."""
    return next((size for size in BINS_S if window.seconds / size <= MOST_BINS), BINS_S[-1])


def changes(store: Store, window: Window, stage: str | None = None) -> list[Change]:
    """Lasting changes in the window, strongest evidence first. With a stage, its own only."""
    size = bin_seconds(window)
    bounds: dict[str, Any] = {"low": ns(window.start), "high": ns(window.end), "bin": size * 1_000_000_000}
    return find(store.read(statement("changes_bins.sql", root=ROOT), stage=stage or "", **bounds), size)


def find(bins: pd.DataFrame, size_s: int) -> list[Change]:
    """Pure part. `bins`: `service, stage, bin, runs, failures, good, q` (p50 and p99 in ns) as changes_bins.sql gives them."""
    candidates: list[Change] = []
    tests: list[float] = []
    for name, measure, at, values in _series(bins):
        found = splits(values)
        tests += [split.p_value for split in found] or [1.0]
        candidates += _described((*name, measure), at * size_s, values, found) or [_nothing(size_s)]
    q_values = false_discovery(np.array(tests)).tolist()
    sure = [
        replace(item, q_value=q) for item, q in zip(candidates, q_values, strict=True) if q < MAX_Q and _matters(item)
    ]
    return sorted(sure, key=lambda item: (item.q_value, item.service, item.stage, item.measure, item.at))


def splits(values: Floats) -> list[Split]:
    """Where a series of n values changes level, in order. The walk of ranks of Pettitt (1979), judged by its range (Kuiper 1960),
    so that a trouble that passes is seen too: x² = 3 R² / (v (n³ + n²)), p = 2 (4 x² − 1) exp(−2 x²); then again on either side of
    the place found. v = (1 + ρ) / (1 − ρ) allows for values that hang together."""
    return sorted(_splits(values, 0), key=lambda split: split.place)


def _splits(values: Floats, offset: int) -> list[Split]:
    found = likeliest(values)
    if found is None or found.p_value > SPLIT_P:
        return []
    left, right = values[: found.place], values[found.place :]
    here = Split(found.place + offset, found.p_value)
    return [here, *_splits(left, offset), *_splits(right, offset + found.place)]


def likeliest(values: Floats) -> Split | None:
    """The likeliest place of a change with the p-value that there is any; None for fewer than 12 values."""
    count = len(values)
    if count < LEAST_BINS:
        return None
    ranks = rankdata(values)
    walk = 2 * np.cumsum(ranks) - np.arange(1, count + 1) * (count + 1)
    inner = walk[LEAST_SIDE - 1 : count - LEAST_SIDE]
    place = int(np.argmax(np.abs(inner))) + LEAST_SIDE
    reach = max(float(inner.max()), 0.0) - min(float(inner.min()), 0.0)
    hang = _hang(ranks)
    square = 3 * reach**2 * (1 - hang) / (1 + hang) / (count**3 + count**2)
    return Split(place, float(min(1.0, 2 * (4 * square - 1) * np.exp(-2 * square))) if square > 1 else 1.0)


def _hang(ranks: Floats) -> float:
    """Lag-1 correlation ρ out of the steps between neighbours, whose own is (ρ − 1) / 2: a change of level hardly moves it."""
    steps = np.diff(ranks)
    power = float(steps @ steps) / len(steps)
    between = float(steps[1:] @ steps[:-1]) / (len(steps) - 1)
    return float(np.clip(1 + 2 * between / power, 0.0, MOST_CORRELATED)) if power > 0 else 0.0


def _series(bins: pd.DataFrame) -> Iterator[tuple[tuple[str, str], str, NDArray[np.int64], Floats]]:
    """Each stage's measures over the bins that have enough runs: (service, stage), measure, bin numbers, values."""
    for (service, stage), group in bins.groupby(["service", "stage"], sort=True) if len(bins) else ():
        rows = group[group["runs"] >= LEAST_RUNS].sort_values("bin")
        for place, measure in enumerate(MEASURES):
            least = LEAST_FOR_P99 if measure == "p99_ms" else LEAST_RUNS
            used = rows if measure == "error_rate" else rows[rows["good"] >= least]
            if len(used) < LEAST_BINS:
                continue
            if measure == "error_rate":
                values = (used["failures"] / used["runs"]).to_numpy(float)
            else:
                values = np.array([float(pair[place]) / 1e6 for pair in used["q"]])
            yield (str(service), str(stage)), measure, used["bin"].to_numpy(np.int64), values


def _described(
    names: tuple[str, str, str], starts_s: NDArray[np.int64], values: Floats, found: Sequence[Split]
) -> list[Change]:
    """One change a split; the levels are those between the neighbouring splits."""
    middle = np.mean if names[2] == "error_rate" else np.median
    edges = [0, *(split.place for split in found), len(values)]
    out = []
    for low, place, high in zip(edges, edges[1:-1], edges[2:], strict=False):
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(starts_s[place]))
        levels = float(middle(values[low:place])), float(middle(values[place:high]))
        out.append(Change(*names, moment, *levels, 1.0, (place - low, high - place)))
    return out


def _nothing(size_s: int) -> Change:
    """Holds the place of a series without a split, so that it counts among the tests."""
    return Change("", "", MEASURES[0], datetime.fromtimestamp(size_s, UTC), 0.0, 0.0, 1.0, (0, 0))


def _matters(item: Change) -> bool:
    if item.measure == "error_rate":
        return abs(item.after - item.before) >= LEAST_ERRORS
    low, high = sorted((item.before, item.after))
    return high >= LEAST_RATIO * low and high > 0
