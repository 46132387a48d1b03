"""What localising needs, out of the store: runs of a window and of healthy blocks, and how busy each service's CPU was.

Must stay true: a trace belongs to the window or block in which it began, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pandas as pd

from analytics.findings import Window
from analytics.localise import Suspect, localise
from analytics.localise_score import robust_z
from analytics.stages import ns
from analytics.stages_sql import statement
from ingest.store import Store

MAX_RUNS = 1_500_000
CPU_METRICS = [
    "container.cpu.utilization",
    "k8s.pod.cpu.utilization",
    "k8s.pod.cpu_limit_utilization",
    "process.cpu.utilization",
    "container.cpu.usage",
    "k8s.pod.cpu.usage",
]
MIN_HISTORY = 5
MAX_BLOCKS = 24
ONSET = timedelta(minutes=1)
Z_SLOPE = 2.5


def load(store: Store, window: Window, blocks: Sequence[Window]) -> pd.DataFrame:
    """Runs as `localise` wants them; about 1.5 million at most, else one trace in so many."""
    parts = [*blocks, window]
    counts = [
        int(store.value(statement("localise_count.sql"), low=ns(part.start), high=ns(part.end))) for part in parts
    ]
    sample = 1 + sum(counts) // MAX_RUNS
    frames = []
    for number, part in enumerate(parts):
        if counts[number]:
            frame = _read(store, part, sample)
            frames.append(frame.assign(block=-1 if number == len(blocks) else number))
    return pd.concat(frames, ignore_index=True) if frames else _empty()


def suspects(store: Store, window: Window, baseline: Window) -> list[Suspect]:
    """Services by how well a fault in them explains why `window` is slower than `baseline`, best first, CPU metrics included.

    The baseline is cut into blocks as long as the window, 24 at most (the last ones), the minute before the window left out.
    """
    end = min(baseline.end, window.start - ONSET) if baseline.start < window.start else baseline.end
    length = window.end - window.start
    blocks: list[Window] = []
    while end - length >= baseline.start and len(blocks) < MAX_BLOCKS:
        blocks.insert(0, Window(end - length, end))
        end -= length
    if not blocks and end > baseline.start:
        blocks = [Window(baseline.start, end)]
    return localise(load(store, window, blocks), cpu_evidence(store, window, blocks)) if blocks else []


def _empty() -> pd.DataFrame:
    names = ("service", "stage", "callee", "trace", "block", "own_ns", "request_ns", "response_ns", "gap_ns")
    return pd.DataFrame({name: pd.Series(dtype="object" if name in names[:3] else "float64") for name in names})


def _read(store: Store, part: Window, sample: int) -> pd.DataFrame:
    table = store.read_arrow(statement("localise_runs.sql"), low=ns(part.start), high=ns(part.end), sample=sample)
    runs: pd.DataFrame = table.to_pandas()
    gaps = runs["is_gap"].to_numpy(bool)
    caller = pd.Series(runs["stage"].to_numpy(), index=runs["span"].to_numpy())[lambda s: ~s.index.duplicated()]
    edges = runs[gaps]
    callee = np.full(len(runs), "", object)
    callee[gaps] = edges["stage"].str.rpartition(" → ")[2].to_numpy()
    stage = runs["stage"].to_numpy(object).copy()
    stage[gaps] = caller.reindex(edges["parent"]).fillna("").to_numpy()
    request = np.where(gaps, runs["request_ns"], 0.0)
    whole = np.where(gaps, runs["duration_ns"], 0).astype(float)
    out = pd.DataFrame(
        {
            "service": runs["service"],
            "stage": stage,
            "callee": callee,
            "trace": runs["trace"],
            "own_ns": np.where(gaps, 0, runs["own_ns"]).astype(float),
            "request_ns": request,
            "response_ns": whole - request,
            "gap_ns": whole,
        }
    )
    is_caller = runs["span"].isin(edges["parent"]).to_numpy() & ~gaps
    kept: pd.DataFrame = out[~is_caller]
    return kept


def cpu_evidence(store: Store, window: Window, blocks: Sequence[Window]) -> dict[str, float]:
    """Evidence by service that its CPU was busier in the window than in the blocks; services without history are left out."""
    low = min(ns(part.start) for part in (window, *blocks))
    high = max(ns(part.end) for part in (window, *blocks))
    found = store.read(statement("localise_cpu.sql"), names=CPU_METRICS, low=low, high=high)
    out: dict[str, float] = {}
    for service, group in found.groupby("service", sort=True) if len(found) else ():
        at, value = group["at_ns"].to_numpy(np.int64), group["value"].to_numpy(float)
        now = value[(at >= ns(window.start)) & (at < ns(window.end))]
        healthy = np.zeros(len(at), bool)
        for block in blocks:
            healthy |= (at >= ns(block.start)) & (at < ns(block.end))
        if len(now) and healthy.sum() >= MIN_HISTORY:
            z = max(robust_z(float(now.max()), value[healthy].tolist()), 0.0)
            out[str(service)] = float(Z_SLOPE * np.log1p(z**2 / 4))
    return out
