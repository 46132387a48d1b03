"""What localising needs, out of the store: runs of a window and of healthy blocks, cut from a baseline.

Must stay true: a run belongs to the window or block in which it began, and to no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pandas as pd

from analytics.findings import Window
from analytics.localise import Suspect, localise
from analytics.localise_metrics import metrics
from analytics.stages import ns
from analytics.stages_sql import statement
from ingest.store import Store

MAX_RUNS = 1_500_000
MAX_BLOCKS = 24
ONSET = timedelta(minutes=1)


def load(store: Store, window: Window, blocks: Sequence[Window]) -> pd.DataFrame:
    """Runs as `localise` wants them; about 1.5 million at most, else whole traces, one in so many."""
    parts = [*blocks, window]
    lows, highs = [ns(part.start) for part in parts], [ns(part.end) for part in parts]
    bounds = {"lows": lows, "highs": highs, "low": min(lows), "high": max(highs)}
    sample = 1 + int(store.value(statement("localise_count.sql"), **bounds)) // MAX_RUNS
    runs = store.read_arrow(statement("localise_runs.sql"), sample=sample, **bounds).to_pandas()
    block = runs.pop("part").to_numpy(np.int64) - 1
    found = _edges(runs).assign(block=np.where(block == len(blocks), -1, block))
    return found.loc[~found.pop("is_caller").to_numpy(bool)]


def suspects(store: Store, window: Window, baseline: Window) -> list[Suspect]:
    """Services by how well a fault in them explains why `window` is slower than `baseline`, best first, metrics included."""
    blocks = cut(window, baseline)
    return localise(load(store, window, blocks), metrics(store, window, blocks)) if blocks else []


def cut(window: Window, baseline: Window) -> list[Window]:
    """The baseline in blocks as long as the window, 24 at most (the last ones), the minute before the window left out."""
    end = min(baseline.end, window.start - ONSET) if baseline.start < window.start else baseline.end
    length = window.end - window.start
    blocks: list[Window] = []
    while end - length >= baseline.start and len(blocks) < MAX_BLOCKS:
        blocks.insert(0, Window(end - length, end))
        end -= length
    if not blocks and end > baseline.start:
        blocks = [Window(baseline.start, end)]
    return blocks


def _edges(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs with their callee and legs; the client span that an edge was made of is marked `is_caller`."""
    gaps = runs["is_gap"].to_numpy(bool)
    names = runs["stage"].astype("category")
    callee_of = names.cat.categories.to_series().str.rpartition(" → ")[2].to_numpy(object)
    callee = np.full(len(runs), "", object)
    callee[gaps] = callee_of[names.cat.codes.to_numpy()[gaps]] if gaps.any() else ""
    callers = pd.Index(runs["parent"].to_numpy()[gaps])
    stage = runs["stage"].to_numpy(object).copy()
    known = pd.Series(stage, index=runs["span"].to_numpy())[lambda found: ~found.index.duplicated()]
    stage[gaps] = known.reindex(callers).fillna("").to_numpy(object)
    whole = np.where(gaps, runs["duration_ns"], 0).astype(float)
    request = np.where(gaps, runs["request_ns"], 0.0)
    return pd.DataFrame(
        {
            "service": runs["service"].to_numpy(object),
            "stage": stage,
            "callee": callee,
            "trace": runs["trace"],
            "own_ns": np.where(gaps, 0, runs["own_ns"]).astype(float),
            "request_ns": request,
            "response_ns": whole - request,
            "gap_ns": whole,
            "is_caller": runs["span"].isin(callers).to_numpy() & ~gaps,
        }
    )
