"""How unusual a stage is in a window against blocks of healthy traffic: normal scores, healthy spread, evidence.

Must stay true: a quiet stage counts against a fault, and a stage that always varies proves little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_SCORE = 3.0
MAX_TAIL_SCORE = 6.0
TAIL_FLOOR = 0.15
USUAL_SPREAD = 0.35
PRIOR_BLOCKS = 4.0
EFFECT = 2.0
SLOPE = 2.5
LEAST, MOST = -1.5, 15.0
MIN_BASELINE = 20
MIN_WINDOW = 3


@dataclass(frozen=True, slots=True)
class Shift:
    """One stage in the window: n traces, mean normal score, its standard error (with the healthy spread between blocks),
    z, evidence, and the excess in ns a run with its standard error."""

    runs: int
    mean_score: float
    error: float
    z: float
    evidence: float
    excess_ns: float
    excess_error_ns: float


def shift(window: Floats, window_traces: int, baseline: Floats, blocks: Ints) -> Shift | None:
    """Compare values (ns) of one stage in the window with those of the baseline; None when there are too few."""
    if len(window) < MIN_WINDOW or len(baseline) < MIN_BASELINE:
        return None
    ordered = np.sort(baseline)
    scores = normal_scores(window, ordered)
    spread = healthy_spread(normal_scores(baseline, ordered), blocks)
    error = float(np.sqrt(1.0 / window_traces + spread))
    mean = float(scores.mean())
    z = mean / error
    excess, excess_error = _excess(window, baseline)
    return Shift(len(window), mean, error, z, evidence(z, error), excess, excess_error)


def normal_scores(values: Floats, ordered: Floats) -> Floats:
    """Φ⁻¹ of the mid-rank in the sorted baseline, within ±3; above its largest value a robust log z, up to 6."""
    count = len(ordered)
    rank = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    scores = np.clip(ndtri((rank + 0.5) / (count + 1)), -MAX_SCORE, MAX_SCORE)
    logs = np.log1p(ordered)
    middle = float(np.median(logs))
    scale = 1.4826 * float(np.median(np.abs(logs - middle))) + TAIL_FLOOR
    tail = np.clip((np.log1p(values) - middle) / scale, scores, MAX_TAIL_SCORE)
    return np.where(values > ordered[-1], tail, scores)


def healthy_spread(scores: Floats, blocks: Ints) -> float:
    """Variance of the block means beyond chance (robust, by MAD), drawn towards 0.35² when there are few blocks."""
    _, code = np.unique(blocks, return_inverse=True)
    counts = np.bincount(code)
    means = np.bincount(code, weights=scores) / counts
    solid = counts >= MIN_WINDOW
    if solid.sum() < 2:
        return USUAL_SPREAD**2
    means, counts = means[solid], counts[solid]
    mad = 1.4826 * float(np.median(np.abs(means - np.median(means))))
    between = max(mad**2 - float(np.median(1.0 / counts)), 0.0)
    return float((len(means) * between + PRIOR_BLOCKS * USUAL_SPREAD**2) / (len(means) + PRIOR_BLOCKS))


def evidence(z: float, error: float) -> float:
    """Log of how much better "slower" explains the stage than "as ever": heavy-tailed above, against when it is quiet."""
    above = max(z, 0.0)
    raw = SLOPE * np.log1p(above**2 / 4) - 0.5 * np.log1p(EFFECT**2 / error**2)
    return float(np.clip(raw, LEAST, MOST))


def _excess(window: Floats, baseline: Floats) -> tuple[float, float]:
    """Difference of the winsorised means (ns a run) and its standard error."""
    limit = max(float(np.quantile(baseline, 0.99)), float(np.quantile(window, 0.95)))
    new, old = np.minimum(window, limit), np.minimum(baseline, limit)
    error = np.sqrt(new.var() / len(new) + old.var() / len(old))
    return float(new.mean() - old.mean()), float(error)
