"""Small statistics with their sources: rates that differ, quantiles that differ, many tests at once.

Must stay true: every estimate comes with an interval, and the same input gives the same interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Z95 = 1.959963984540054
Z99 = 2.5758293035489004
SEED = 20_240_101


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratios:
    """Rate ratios (inside / outside) with 95 % intervals, differences of the rates, and two-sided p-values; arrays (n,)."""

    ratio: Floats
    low: Floats
    high: Floats
    difference: Floats
    p_value: Floats


def rate_ratios(hits: Ints, runs: Ints, all_hits: int, all_runs: int) -> Ratios:
    """Hits per run inside each slice against the rest. Log interval with half a hit added (Katz et al. 1978; Walter 1975);
    p by the hypergeometric distribution (Fisher's exact test, doubled smaller tail)."""
    rest_hits, rest_runs = all_hits - hits, all_runs - runs
    inside, outside = (hits + 0.5) / (runs + 0.5), (rest_hits + 0.5) / (rest_runs + 0.5)
    error = np.sqrt(
        np.maximum(1 / (hits + 0.5) - 1 / (runs + 0.5) + 1 / (rest_hits + 0.5) - 1 / (rest_runs + 0.5), 1e-12)
    )
    log_ratio = np.log(inside / outside)
    law = stats.hypergeom(all_runs, all_hits, runs)
    p_value = np.minimum(1.0, 2 * np.minimum(law.sf(hits - 1), law.cdf(hits)))
    plain = hits / np.maximum(runs, 1) - rest_hits / np.maximum(rest_runs, 1)
    return Ratios(
        np.exp(log_ratio), np.exp(log_ratio - Z95 * error), np.exp(log_ratio + Z95 * error), plain, np.asarray(p_value)
    )


def false_discovery(p_values: Floats) -> Floats:
    """q-values that hold under any dependence between the tests (Benjamini & Yekutieli 2001)."""
    if len(p_values) == 0:
        return np.zeros(0)
    return np.asarray(stats.false_discovery_control(np.clip(p_values, 0, 1), method="by"))


def weighted_quantile(ordered: Floats, weights: Floats, levels: Floats) -> Floats:
    """Quantiles of sorted values with weights: the first value whose share of the weight reaches the level."""
    total = np.cumsum(weights)
    place = np.searchsorted(total, levels * total[-1])
    found: Floats = ordered[np.minimum(place, len(ordered) - 1)]
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """n values with weights and the block (e.g. minute) each was seen in."""

    values: Floats
    weights: Floats
    blocks: Ints


def bootstrap_quantiles(sample: Sample, levels: Floats, rounds: int = 200, seed: int = SEED) -> tuple[Floats, Floats]:
    """Quantiles (k,) and their bootstrap replicates (rounds, k), drawing whole blocks (Cameron, Gelbach & Miller 2008), or
    single values where there are fewer than 10 blocks."""
    order = np.argsort(sample.values, kind="stable")
    values, weights = sample.values[order], sample.weights[order]
    names, code = np.unique(sample.blocks[order], return_inverse=True)
    if len(names) < 10:
        code, count = np.arange(len(values)), len(values)
    else:
        count = len(names)
    random = np.random.default_rng(seed)
    draws = np.empty((rounds, len(levels)))
    for number in range(rounds):
        times = np.bincount(random.integers(0, count, count), minlength=count)[code]
        drawn = weights * times
        draws[number] = weighted_quantile(values, drawn if drawn.any() else weights, levels)
    return weighted_quantile(values, weights, levels), draws


def bootstrap_mean(sample: Sample, rounds: int = 200, seed: int = SEED) -> tuple[float, Floats]:
    """Weighted mean and its bootstrap replicates (rounds,), drawing blocks as `bootstrap_quantiles` does."""
    names, code = np.unique(sample.blocks, return_inverse=True)
    if len(names) < 10:
        code = np.arange(len(sample.values))
    sums, sizes = np.bincount(code, sample.weights * sample.values), np.bincount(code, sample.weights)
    random = np.random.default_rng(seed)
    picks = (random.integers(0, len(sizes), len(sizes)) for _ in range(rounds))
    return float(sums.sum() / sizes.sum()), np.array([sums[pick].sum() / sizes[pick].sum() for pick in picks])


def difference(first: tuple[float, Floats], second: tuple[float, Floats], outside: float = 0.05) -> Estimate:
    """second − first with the interval that leaves `outside` of the replicates' differences out, half on either side."""
    spread = second[1] - first[1]
    low, high = np.quantile(spread, [outside / 2, 1 - outside / 2])
    return Estimate(second[0] - first[0], float(low), float(high))


def rate_difference(hits_a: float, runs_a: float, hits_b: float, runs_b: float, z: float = Z95) -> Estimate:
    """Rate B − rate A with Newcombe's interval from two Wilson intervals (Newcombe 1998, method 10)."""
    (rate_a, low_a, high_a), (rate_b, low_b, high_b) = wilson(hits_a, runs_a, z), wilson(hits_b, runs_b, z)
    value = rate_b - rate_a
    low = value - float(np.hypot(rate_b - low_b, high_a - rate_a))
    high = value + float(np.hypot(high_b - rate_b, rate_a - low_a))
    return Estimate(value, low, high)


def wilson(hits: float, runs: float, z: float = Z95) -> tuple[float, float, float]:
    """Rate with its Wilson score interval (95 % unless told); (nan, 0, 1) of nothing."""
    if runs == 0:
        return float("nan"), 0.0, 1.0
    rate, square = hits / runs, z**2
    middle = (rate + square / (2 * runs)) / (1 + square / runs)
    half = z / (1 + square / runs) * float(np.sqrt(rate * (1 - rate) / runs + square / (4 * runs**2)))
    return rate, middle - half, middle + half
