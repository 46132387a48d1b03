"""What was seen around each run that can explain its slowness: one feature a cause, a dimension value, a version, a host, load.

Must stay true: a feature is evidence that was recorded at that host and instant, never a guess from the run's own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analytics.slow_stage import Array, Flags, Stage

MIN_SLICE, MIN_TOOL_SLICE = 30, 60
MAX_VALUES = 12
USUAL_SPREAD = 0.05
USUAL_HOST_SPREAD = 0.08
FIRST_MINUTES_S = 120.0
# How much a feature's gain counts when several fit: mechanisms before places, places before versions, versions before mere times.
TRUST = {"mechanism": 1.0, "load": 0.85, "dimension": 0.8, "host": 0.75, "version": 0.75, "time": 0.55}
# (cause, column, threshold, comparison, unit): FIELD's danger marks.
MARKS: Sequence[tuple[str, str, float, str]] = (
    ("fallback_path", "ev_fallback", 0.5, "level"),
    ("fallback_path", "ev_degraded", 0.5, ""),
    ("cold_start", "ev_cold_start", 0.5, ""),
    ("kv_cache_pressure", "ev_kv_usage", 0.92, "ratio"),
    ("kv_cache_pressure", "engine_kv", 0.92, "ratio"),
    ("kv_cache_pressure", "ev_preemptions", 0.5, "count"),
    ("gpu_contention", "sm", 0.90, "ratio"),
    ("pcie_saturation", "pcie", 0.80, "ratio"),
    ("storage_wait", "disk_queue", 10.0, "requests"),
    ("network_hop", "net_rtt", 30.0, "ms"),
    ("lock_wait", "ev_lock_holders", 0.5, "holders"),
    ("cpu_blocking", "cpu", 0.95, "ratio"),
    ("queueing", "waiting", 0.5, "requests"),
)


@dataclass(frozen=True, slots=True)
class Feature:
    """`values` per run (0/1, or a covariate with mean 0); `group` is a key of TRUST; `spread` a healthy log difference of its kind."""

    cause: str
    group: str
    name: str
    values: Array
    threshold: float = 0.0
    unit: str = ""
    spread: float = 0.0

    @property
    def on(self) -> Flags:
        found: Flags = self.values > 0
        return found


def features(stage: Stage) -> list[Feature]:
    """Every feature with enough runs on both sides, in a fixed order."""
    found = [*_mechanisms(stage), *_load(stage), *_places(stage)]
    n = len(stage.service_ms)
    return [*(f for f in found if MIN_SLICE <= int(f.on.sum()) <= n - MIN_SLICE or f.group == "load"), *_counts(stage)]


def marks(stage: Stage) -> list[Feature]:
    """The mechanisms alone, with no demand on how often they hold (an always-full cache has no contrast)."""
    return _mechanisms(stage)


def _mechanisms(stage: Stage) -> list[Feature]:
    found: dict[str, Feature] = {}
    for cause, column, threshold, unit in MARKS:
        values = stage.fact(column)
        if np.isnan(values).all() or not _applies(cause, stage):
            continue
        on = (values > threshold).astype(float)
        name = column.removeprefix("ev_")
        if on.any() and (cause not in found or on.sum() > found[cause].values.sum()):
            found[cause] = Feature(cause, "mechanism", name, on, threshold, unit)
    cold = _first_minutes(stage)
    if "cold_start" not in found and cold.any():
        found["cold_start"] = Feature("cold_start", "mechanism", "uptime_s", cold, FIRST_MINUTES_S, "s")
    return list(found.values())


def _counts(stage: Stage) -> list[Feature]:
    """How often a run was preempted: where all are, the number still tells."""
    counts = np.clip(np.nan_to_num(stage.fact("ev_preemptions")), 0, 10)
    if float(counts.std()) < 0.3 or int((counts > 0).sum()) < MIN_SLICE:
        return []
    return [Feature("kv_cache_pressure", "mechanism", "preemptions", counts, 0.0, "a preemption")]


def _applies(cause: str, stage: Stage) -> bool:
    if cause in ("gpu_contention", "kv_cache_pressure", "pcie_saturation", "queueing"):
        return bool(stage.model) or not np.isnan(stage.fact("ev_gpu")).all()
    return True


def _first_minutes(stage: Stage) -> Array:
    """Runs in the first minutes of a process that says its age."""
    age = stage.fact("ev_uptime_s")
    found: Array = (age < FIRST_MINUTES_S).astype(float)
    return found


def _load(stage: Stage) -> list[Feature]:
    starts = stage.fact("in_flight")
    if np.isnan(starts).any() or len(starts) == 0:
        return []
    logs = np.log(np.maximum(starts, 1.0))
    if float(logs.std()) < 0.15:
        return []
    return [Feature("queueing", "load", "starts_per_minute", logs - logs.mean(), unit="1/min")]


def _places(stage: Stage) -> list[Feature]:
    """Values of each dimension. The tools of a stage differ by nature and are judged each by its own fit."""
    found: list[Feature] = []
    logs = np.log(stage.service_ms)
    for column, group, cause in (
        ("region", "dimension", "dimension_specific"),
        ("device", "dimension", "dimension_specific"),
        ("user_tier", "dimension", "dimension_specific"),
        ("host", "host", "dimension_specific"),
        ("version", "version", "regression"),
        ("tool", "dimension", "slow_dependency"),
    ):
        codes, values = pd.factorize(stage.frame[column], sort=True)
        names = [str(value) for value in values]
        counts = np.bincount(codes[codes >= 0], minlength=len(names))
        keep = sorted(range(len(names)), key=lambda code: (-counts[code], names[code]))[:MAX_VALUES]
        masks = {names[code]: codes == code for code in keep}
        least = MIN_TOOL_SLICE if column == "tool" else MIN_SLICE
        means = {name: float(np.median(logs[mask])) for name, mask in masks.items() if mask.sum() >= least}
        for name, mask in masks.items():
            if name and name in means and len(means) > 1:
                spread = (
                    USUAL_SPREAD
                    if column == "tool"
                    else _between([mean for other, mean in means.items() if other != name])
                )
                found.append(Feature(cause, group, f"{column}={name}", mask.astype(float), spread=spread))
    return found


def _between(means: Sequence[float]) -> float:
    """Robust spread of the other slices' centres, shrunk towards the few per cent by which healthy slices differ."""
    if len(means) < 2:
        return USUAL_SPREAD
    centre = float(np.median(means))
    seen = 1.4826 * float(np.median(np.abs(np.array(means) - centre)))
    share = len(means) / (len(means) + 4.0)
    return float(np.sqrt(share * min(seen, 0.3) ** 2 + (1 - share) * USUAL_SPREAD**2))
