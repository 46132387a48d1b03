"""Fits of time to declared work: non-negative rates at the lower quartile, with relative residuals.

Must stay true: more work never costs less time, and the order of the rows does not matter.
Source: Koenker & Bassett 1978 (quantile regression), solved by re-weighted non-negative least squares.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Array = npt.NDArray[np.float64]

TAU = 0.25
ROUNDS = 25
FLOOR_MS = 0.05


def rates(work: Array, time_ms: Array, weight: Array, prior: Array | None = None, strength: float = 0.0) -> Array:
    """Non-negative coefficients (columns of `work`, shape n x k) at the `TAU` quantile of `time_ms`.

    Minimises sum w * rho_tau((t - x.b) / x.b). `prior` (k rates) says in which proportion the rates stand where the rows
    cannot tell: it is scaled to the rows first, and enters as `strength` pseudo rows a rate.
    """
    time_ms = np.maximum(time_ms, FLOOR_MS)
    weight = weight / max(weight.sum(), 1e-12)
    anchor = _scaled(work, time_ms, weight, prior)
    found = anchor if anchor is not None else _solve(work, time_ms, weight / time_ms**2, None, 0.0)
    for _ in range(ROUNDS):
        predicted = np.maximum(work @ found, 0.02 * time_ms)
        relative = (time_ms - predicted) / predicted
        pull = np.where(relative < 0, 1 - TAU, TAU) / np.maximum(np.abs(relative), 0.01)
        following = _solve(work, time_ms, weight * pull / predicted**2, anchor, strength)
        step = np.max(np.abs(following - found) / np.maximum(found, 1e-9 + 1e-3 * found.max(initial=0.0)))
        found = following
        if step < 1e-4:
            break
    return found


def _scaled(work: Array, time_ms: Array, weight: Array, prior: Array | None) -> Array | None:
    if prior is None:
        return None
    base = np.maximum(work @ prior, FLOOR_MS)
    return prior * float(np.exp(weighted_quantile(np.log(time_ms / base), weight, TAU)))


def _solve(work: Array, time_ms: Array, weight: Array, anchor: Array | None, strength: float) -> Array:
    scale = np.maximum(np.sqrt(np.average(work**2, axis=0)), 1e-12)
    columns = work / scale
    gram = (columns * weight[:, None]).T @ columns
    right = (columns * weight[:, None]).T @ time_ms
    if anchor is not None and strength > 0:
        goal = np.maximum(anchor * scale, 1e-9)
        pull = strength * float(np.trace(gram)) / len(goal) * (goal.max() / goal) ** 2 * 1e-2
        gram = gram + np.diag(pull)
        right = right + pull * goal
    gram = gram + 1e-9 * np.trace(gram) / len(scale) * np.eye(len(scale))
    lower = np.linalg.cholesky(gram)
    solution, _ = nnls(lower.T, np.linalg.solve(lower, right))
    found: Array = solution / scale
    return found


def weighted_quantile(values: Array, weight: Array, quantile: float) -> float:
    """The value below which `quantile` of the weight lies."""
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(weight[order])
    at = int(np.searchsorted(mass, quantile * mass[-1]))
    return float(values[order][min(at, len(values) - 1)])


def lower_spread(logs: Array) -> float:
    """Standard deviation of a log-normal from its lower half: (q50 - q10) / 1.2816, at least 0.02."""
    low, mid = np.quantile(logs, (0.10, 0.50))
    return float(max((mid - low) / 1.2816, 0.02))
