"""Compute health in five dimensions: GPU compute, GPU memory, PCIe, storage, network (and the CPU beside them).

Must stay true: one healthy metric is not a healthy system, and a short spike is not a sickness: danger must last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analytics.findings import Analyzer, Evidence, Finding, Window, finding_key
from analytics.slow_load import hardware
from ingest.store import Store

Array = npt.NDArray[np.float64]
MIN_STREAK_S = 30.0
MIN_SAMPLES = 4
MAX_GAP_S = 120.0


class Rule(NamedTuple):
    """Danger above `danger` for MIN_STREAK_S; `healthy` is the value to return to."""

    dimension: str
    table: str
    column: str
    healthy: float
    danger: float
    unit: str
    says: str
    change: str


RULES: tuple[Rule, ...] = (
    Rule(
        "gpu_compute",
        "gpu",
        "sm",
        0.75,
        0.90,
        "ratio",
        "SM activity",
        "Spread the load, cap concurrency, or add a device before p95 turns.",
    ),
    Rule(
        "gpu_memory",
        "gpu",
        "gpu_mem",
        0.85,
        0.95,
        "ratio",
        "GPU memory in use",
        "Cap context length, bound the KV cache (free x 0.8 / bytes a token), and move other models off this device before it runs out.",
    ),
    Rule(
        "pcie",
        "gpu",
        "pcie",
        0.60,
        0.80,
        "ratio",
        "PCIe bandwidth in use",
        "Keep models resident, pin host memory and batch copies; find the job that moves weights at run time.",
    ),
    Rule(
        "storage",
        "host",
        "disk_queue",
        2.0,
        10.0,
        "requests",
        "disk queue depth",
        "Move hot files to local NVMe or memory, or buy IOPS; move batch jobs away from peak hours.",
    ),
    Rule(
        "network",
        "host",
        "net_rtt",
        15.0,
        30.0,
        "ms",
        "round trip to its peers",
        "Keep callers and callees in one zone, reuse connections, and check routes between zones.",
    ),
    Rule(
        "cpu",
        "host",
        "cpu",
        0.75,
        0.95,
        "ratio",
        "CPU in use",
        "Move tokenizing, embedding and encoding off the request path or onto more cores.",
    ),
)


@dataclass(frozen=True, slots=True)
class Data:
    """Samples by second: `gpu` (ts, host, gpu, gpu_model, sm, dram, gpu_mem, pcie), `host` (ts, host, cpu, disk_queue, net_rtt)."""

    window: Window
    gpu: pd.DataFrame
    host: pd.DataFrame
    rows_read: int = 0
    note: str = ""


def load(store: Store, window: Window) -> Data:
    """Read the samples of a window."""
    gpu, host, _ = hardware(store, window)
    missing = [name for name, frame in (("GPU", gpu), ("host", host)) if not len(frame)]
    return Data(window, gpu, host, len(gpu) + len(host), f"no {' and no '.join(missing)} samples" if missing else "")


def find(data: Data) -> Sequence[Finding]:
    """One finding a host and dimension that stood in danger for MIN_STREAK_S at a stretch, worst first."""
    found: list[Finding] = []
    for rule in RULES:
        table = data.gpu if rule.table == "gpu" else data.host
        if not len(table) or rule.column not in table:
            continue
        for host, frame in table.groupby("host", sort=True):
            finding = _of_host(data, rule, str(host), frame)
            found += [finding] if finding else []
    return sorted(found, key=lambda item: (-item.lost_seconds, item.key))


def _of_host(data: Data, rule: Rule, host: str, frame: pd.DataFrame) -> Finding | None:
    """The worst device of the host speaks for it."""
    devices = frame.groupby("gpu", sort=True) if rule.table == "gpu" else [("", frame)]
    worst: tuple[float, str, pd.DataFrame] | None = None
    for device, rows in devices:
        known = rows[rows[rule.column].notna()].sort_values("ts")
        streak = longest_s(known["ts"].to_numpy(float), known[rule.column].to_numpy(float) > rule.danger)
        if len(known) >= MIN_SAMPLES and streak >= MIN_STREAK_S and (worst is None or streak > worst[0]):
            worst = (streak, str(device), known)
    return _finding(data, rule, host, worst) if worst else None


def longest_s(ts: Array, bad: npt.NDArray[np.bool_]) -> float:
    """Seconds of the longest unbroken stretch of bad samples (a hole over MAX_GAP_S breaks it)."""
    best = 0.0
    start: float | None = None
    before = 0.0
    for at, is_bad in zip(ts.tolist(), bad.tolist(), strict=True):
        if not is_bad:
            start = None
            continue
        start = at if start is None or at - before > MAX_GAP_S else start
        before = at
        best = max(best, at - start)
    return best


def _finding(data: Data, rule: Rule, host: str, worst: tuple[float, str, pd.DataFrame]) -> Finding:
    streak, device, rows = worst
    values = rows[rule.column].to_numpy(float)
    bad = values > rule.danger
    ts = rows["ts"].to_numpy(float)
    step = float(np.median(np.diff(ts))) if len(ts) > 1 else 0.0
    seconds = float(bad.sum()) * step
    where = f"{host} GPU {device}" if device else host
    share = float(bad.mean())
    edges = [datetime.fromtimestamp(value, UTC) for value in (ts[bad].min(), ts[bad].max())]
    subject = {"service": "", "stage": "", "tier": "", "model": "", "tool": "", "dimension": f"host={host}"}
    limit = f"{rule.danger:g} {rule.unit}".replace(" ratio", "")
    return Finding(
        key=finding_key("health", rule.dimension, host),
        kind="health",
        subject=subject,
        title=f"{where}: {rule.says} above {limit} for {streak:.0f} s at a stretch, {share:.0%} of the window",
        cause=CAUSE_OF[rule.dimension],
        severity="high" if share > 0.2 else "medium" if share > 0.05 else "low",
        lost_seconds=round(seconds, 1),
        lost_low=round(streak, 1) if streak <= seconds else round(seconds, 1),
        lost_high=round(max(seconds, streak), 1),
        share_of_e2e_p95=0.0,
        requests=0,
        users=0,
        evidence=_evidence(rule, values, share, streak, rows),
        recommendation=rule.change,
        effort="medium",
        expected_saving_ms=0.0,
        verify=f"p95 of {rule.says} on {host} below {rule.healthy:g} over the same traffic",
        trace_ids=(),
        window=data.window,
        first_seen=max(edges[0], data.window.start),
        last_seen=min(edges[1], data.window.end),
        query=_query(rule, host),
    )


CAUSE_OF = {
    "gpu_compute": "gpu_contention",
    "gpu_memory": "kv_cache_pressure",
    "pcie": "pcie_saturation",
    "storage": "storage_wait",
    "network": "network_hop",
    "cpu": "cpu_blocking",
}


def _evidence(rule: Rule, values: Array, share: float, streak: float, rows: pd.DataFrame) -> tuple[Evidence, ...]:
    facts = [
        Evidence(f"{rule.column}_p95", round(float(np.quantile(values, 0.95)), 3), rule.unit, rule.healthy),
        Evidence(f"{rule.column}_max", round(float(values.max()), 3), rule.unit, rule.danger),
        Evidence("share_of_window_in_danger", round(share, 4), "ratio", 0.0),
        Evidence("longest_stretch_s", round(streak, 1), "s", MIN_STREAK_S),
    ]
    shape = _shape(rows)
    return (*facts, Evidence("curve_points_to", shape)) if shape else tuple(facts)


def _shape(rows: pd.DataFrame) -> str:
    """What the curves beside it point to (SM activity, memory bandwidth, memory)."""
    if "sm" not in rows or not rows["sm"].notna().any():
        return ""
    sm, dram, memory = (
        float(rows[name].median()) if name in rows else float("nan") for name in ("sm", "dram", "gpu_mem")
    )
    if dram > 0.8 and sm < 0.6:
        return "memory bandwidth full, SM low: memory-bound, as LLM decode is"
    if sm < 0.4 and memory > 0.9:
        return "GPU low, its memory near the limit: capacity, swapping, OOM retries"
    if float(rows["sm"].std()) > 0.3:
        return "GPU swings: queueing, cold starts, batch window"
    return ""


def _query(rule: Rule, host: str) -> str:
    table = "gpu_samples" if rule.table == "gpu" else "host_samples"
    return f"SELECT * FROM {table} FINAL WHERE Host = '{host.replace(chr(39), '')}' ORDER BY Timestamp LIMIT 1000"


ANALYZER = Analyzer("health", load, find)
