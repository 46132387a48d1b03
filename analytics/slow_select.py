"""Which features explain a stage's slowness: forward selection on ln(time / usual), errors clustered by minute.

Must stay true: nothing enters by significance alone; it must also move the time by at least MIN_EFFECT.
Sources: Cameron, Gelbach & Miller 2008 (clusters); DerSimonian & Laird 1986 (spread between slices).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analytics.slow_features import MIN_SLICE, TRUST, Feature
from analytics.slow_stage import Array

MIN_EFFECT = math.log(1.10)
# Healthy hosts differ by some per cent: one is named when it is surely (two standard errors) a fifth slower than its like.
HOST_EFFECT, HOST_SURE_EFFECT = math.log(1.25), math.log(1.2)
# A stretch of time has no mechanism behind it: days drift by some ten per cent on their own.
TIME_EFFECT = math.log(1.3)
MIN_Z = 3.5
MAX_CHOSEN = 6
MIN_BLOCKS = 3
LOAD_EFFECT = math.log(1.5)
TIME_BINS = 48
VERSION_BINS = 20
NOISE_BETWEEN_BLOCKS = 0.03


@dataclass(frozen=True, slots=True)
class Effect:
    """A chosen feature, its log effect (per unit of the feature), and how many standard errors it is away from nothing."""

    feature: Feature
    log_effect: float
    z: float


def select(logs: Array, block: npt.NDArray[np.int64], candidates: Sequence[Feature]) -> list[Effect]:
    """The features that explain `logs` (n values), at most MAX_CHOSEN, with joint non-negative effects."""
    y = np.clip(logs, -1.5, 3.0)
    blocks = np.unique(block, return_inverse=True)[1]
    chosen: list[Feature] = []
    left = list(candidates)
    while len(chosen) < MAX_CHOSEN:
        rest = _left_over(y, chosen)
        pool = [*left, *_time_cut(rest, blocks, chosen)]
        best = _best(y, blocks, chosen, pool)
        if best is None:
            break
        chosen.append(best)
        left = [f for f in left if f is not best]
    return _joint(y, blocks, chosen)


def _best(
    y: Array, blocks: npt.NDArray[np.int64], chosen: Sequence[Feature], pool: Sequence[Feature]
) -> Feature | None:
    rest = _left_over(y, chosen)
    design = _design(len(y), chosen)
    top: tuple[float, str] = (0.0, "")
    found: Feature | None = None
    for feature in pool:
        gain, effect, z = _try(rest, design, blocks, feature)
        if not _enters(feature, effect, z, blocks) or (
            feature.group == "version" and not _holds_within(rest, feature, blocks)
        ):
            continue
        rank = (gain * TRUST[feature.group], feature.name)
        if rank > top:
            top, found = rank, feature
    return found


def _enters(feature: Feature, effect: float, z: float, blocks: npt.NDArray[np.int64]) -> bool:
    if feature.group == "load":
        low, high = np.quantile(feature.values, (0.1, 0.9))
        return bool(z > MIN_Z and effect * (high - low) >= MIN_EFFECT)
    if feature.group == "host" and effect * (1.0 - 2.0 / max(z, 2.0)) < HOST_SURE_EFFECT:
        return False
    least = {"host": HOST_EFFECT, "time": TIME_EFFECT}.get(feature.group, MIN_EFFECT)
    return z > MIN_Z and effect >= least and len(np.unique(blocks[feature.on])) >= MIN_BLOCKS


def _try(rest: Array, design: Array, blocks: npt.NDArray[np.int64], feature: Feature) -> tuple[float, float, float]:
    """(gain in squares, effect, z) of one feature beside those chosen."""
    x = feature.values - design @ np.linalg.lstsq(design, feature.values, rcond=None)[0]
    power = float(x @ x)
    if power < 1e-9 * len(x) or power < 0.02 * float(((feature.values - feature.values.mean()) ** 2).sum()):
        return 0.0, 0.0, 0.0
    effect = float(x @ rest) / power
    score = np.bincount(blocks, weights=x * (rest - effect * x))
    touched = max(len(np.unique(blocks[feature.on])), 1)
    variance = float(score @ score) / power**2 + NOISE_BETWEEN_BLOCKS**2 / touched + feature.spread**2
    return effect**2 * power if effect > 0 else 0.0, effect, effect / math.sqrt(max(variance, 1e-12))


def _left_over(y: Array, chosen: Sequence[Feature]) -> Array:
    design = _design(len(y), chosen)
    found: Array = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return found


def _design(n: int, chosen: Sequence[Feature]) -> Array:
    return np.column_stack([np.ones(n), *(feature.values for feature in chosen)])


def _joint(y: Array, blocks: npt.NDArray[np.int64], chosen: Sequence[Feature]) -> list[Effect]:
    """One fit of all chosen together; those that turn out to do nothing are dropped."""
    kept = list(chosen)
    while kept:
        effects = np.linalg.lstsq(_design(len(y), kept), y, rcond=None)[0][1:]
        weak = [i for i, f in enumerate(kept) if effects[i] < (0.0 if f.group == "load" else 0.5 * MIN_EFFECT)]
        if not weak:
            found = []
            for i, feature in enumerate(kept):
                others = [f for f in kept if f is not feature]
                z = _try(_left_over(y, others), _design(len(y), others), blocks, feature)[2]
                found.append(Effect(feature, float(effects[i]), z))
            return found
        kept = [f for i, f in enumerate(kept) if i not in weak]
    return []


def _time_cut(rest: Array, blocks: npt.NDArray[np.int64], chosen: Sequence[Feature]) -> list[Feature]:
    """The stretch of minutes that differs most from the others."""
    if any(feature.group == "time" for feature in chosen):
        return []
    count = int(blocks.max()) + 1
    bins = blocks * min(count, TIME_BINS) // count
    sizes = np.concatenate([[0], np.cumsum(np.bincount(bins))]).astype(float)
    sums = np.concatenate([[0.0], np.cumsum(np.bincount(bins, weights=rest))])
    inside = sizes[None, :] - sizes[:, None]
    total = sums[None, :] - sums[:, None]
    n = len(rest)
    allowed = (inside >= MIN_SLICE) & (inside <= 0.85 * n)
    gain = np.where(allowed & (total > 0), total**2 / np.maximum(inside, 1) * n / np.maximum(n - inside, 1), 0.0)
    first, final = np.unravel_index(int(np.argmax(gain)), gain.shape)
    if gain[first, final] <= 0:
        return []
    values = ((bins >= first) & (bins < final)).astype(float)
    return [Feature("unknown", "time", "time", values)]


def _holds_within(rest: Array, feature: Feature, blocks: npt.NDArray[np.int64]) -> bool:
    """Where versions ran side by side, the new one must be slower in the same minutes; else time or load moved, not the version."""
    count = int(blocks.max()) + 1
    bins = blocks * min(count, VERSION_BINS) // count
    size = np.maximum(np.bincount(bins), 1)
    x = feature.values - (np.bincount(bins, weights=feature.values) / size)[bins]
    inside, overall = float(x @ x), float(((feature.values - feature.values.mean()) ** 2).sum())
    if inside < 0.05 * overall:
        return True
    y = rest - (np.bincount(bins, weights=rest) / size)[bins]
    across = float((feature.values - feature.values.mean()) @ rest) / overall
    return float(x @ y) / inside >= 0.5 * across
