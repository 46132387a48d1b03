"""What metrics say of services in a window against healthy time: CPU in use, and calls that take the caller longer than the callee.

Must stay true: metrics only add to what traces say; where there are none, nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analytics.findings import Window
from analytics.localise import Metrics
from analytics.localise_score import USUAL_SPREAD, evidence, normal_scores
from analytics.stages import ns
from analytics.stages_sql import statement
from ingest.store import Store

CPU_METRICS = [
    "container.cpu.utilization",
    "k8s.pod.cpu.utilization",
    "k8s.pod.cpu_limit_utilization",
    "process.cpu.utilization",
    "container.cpu.usage",
    "k8s.pod.cpu.usage",
]
EDGE_METRICS = [
    "istio_request_duration_milliseconds",
    "traces_service_graph_request_client",
    "traces_service_graph_request_client_seconds",
    "traces_service_graph_request_server",
    "traces_service_graph_request_server_seconds",
]
MIN_HISTORY = 5
CPU_SCALE = 1e6
SAME_INSTANT_NS = 30_000_000_000


def metrics(store: Store, window: Window, blocks: Sequence[Window]) -> Metrics:
    """Evidence from both kinds of metrics; empty where the store has none."""
    return Metrics(cpu_evidence(store, window, blocks), edge_evidence(store, window, blocks))


def cpu_evidence(store: Store, window: Window, blocks: Sequence[Window]) -> dict[str, float]:
    """Evidence by service that its CPU was busier in the window than in the blocks; services without history are left out."""
    found = store.read(statement("localise_cpu.sql"), names=CPU_METRICS, **_reach(window, blocks))
    out: dict[str, float] = {}
    for service, group in found.groupby("service", sort=True) if len(found) else ():
        now, healthy = _split(group["at_ns"].to_numpy(np.int64), window, blocks)
        value = group["value"].to_numpy(float) * CPU_SCALE
        if now.any() and healthy.sum() >= MIN_HISTORY:
            out[str(service)] = _evidence(value[now], value[healthy])
    return out


def edge_evidence(store: Store, window: Window, blocks: Sequence[Window]) -> dict[tuple[str, str], float]:
    """Evidence by (caller, callee) that the caller waited longer than the callee worked (ms), more than in the blocks."""
    found = store.read(statement("localise_edges.sql"), names=EDGE_METRICS, **_reach(window, blocks))
    out: dict[tuple[str, str], float] = {}
    for (caller, callee), group in found.groupby(["caller", "callee"], sort=True) if len(found) else ():
        at, gap = _gaps(group)
        now, healthy = _split(at, window, blocks)
        if now.any() and healthy.sum() >= MIN_HISTORY:
            out[str(caller), str(callee)] = _evidence(gap[now], gap[healthy])
    return out


def _evidence(now: NDArray[np.float64], healthy: NDArray[np.float64]) -> float:
    """As for stages (localise_score.py), with the usual spread between blocks, since points are few."""
    error = float(np.sqrt(1 / len(now) + USUAL_SPREAD**2))
    return evidence(float(normal_scores(now, np.sort(healthy)).mean()) / error, error)


def _gaps(group: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Instants and what the caller's side took longer than the callee's, at instants that both sides reported."""
    side = group["from_caller"].astype(bool)
    columns = ["at_ns", "ms"]
    both = pd.merge_asof(
        group.loc[side, columns].sort_values("at_ns"),
        group.loc[~side, columns].sort_values("at_ns"),
        on="at_ns",
        direction="nearest",
        tolerance=SAME_INSTANT_NS,
        suffixes=("", "_callee"),
    ).dropna()
    return both["at_ns"].to_numpy(np.int64), (both["ms"] - both["ms_callee"]).clip(lower=0).to_numpy(float)


def _reach(window: Window, blocks: Sequence[Window]) -> dict[str, int]:
    parts = (window, *blocks)
    return {"low": min(ns(part.start) for part in parts), "high": max(ns(part.end) for part in parts)}


def _split(
    at: NDArray[np.int64], window: Window, blocks: Sequence[Window]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which instants lie in the window, and which in the blocks."""
    now = (at >= ns(window.start)) & (at < ns(window.end))
    healthy = np.zeros(len(at), bool)
    for block in blocks:
        healthy |= (at >= ns(block.start)) & (at < ns(block.end))
    return now, healthy
