"""The waterfall of one trace: every stage run in the order of the tree, with self time, gaps and the critical path.

Must stay true: it shows the rows of stage_runs as they are, also when parents are missing or links run in circles.
"""

from __future__ import annotations

from collections import defaultdict

import pandas as pd

from analytics.expectation_store import unjustified
from analytics.stages_sql import statement
from ingest.errors import BadInput
from ingest.store import Store

COLUMNS = (
    "depth stage kind service start_ms end_ms duration_ms self_ms critical_ms gap critical wait_ms failed error_type error_message "
    "tier model tool host input_tokens cached_tokens output_tokens retries marks unjustified_ms span_id parent_span_id evidence"
).split()
MAX_RUNS = 20_000


def waterfall(store: Store, trace_id: str) -> pd.DataFrame:
    """One row a run, parents before children, siblings by start; `start_ms` counts from the first run.

    `critical` says whether the run itself is what the request waited for at some time; `unjustified_ms` is what neither its work
    nor its declared waiting nor its purpose explains (NaN where the stage was never judged). Raises BadInput for a trace that has
    no runs.
    """
    runs = store.read(statement("traces_runs.sql"), trace=trace_id.strip().lower(), limit=MAX_RUNS)
    if not len(runs):
        raise BadInput(
            "unknown trace", f"no stage runs of trace {trace_id}: is the id whole, and has it been built yet?"
        )
    runs = runs.reset_index(drop=True)
    order, depth = _tree_order(runs)
    out = runs.iloc[order].reset_index(drop=True)
    out["depth"] = depth
    first = int(runs["start_ns"].min())
    out["start_ms"] = (out["start_ns"] - first) / 1e6
    out["end_ms"] = out["start_ms"] + out["duration_ms"]
    out["gap"] = out["kind"] == "gap"
    out["critical"] = out["critical_ms"] > 0
    out["failed"] = out["failed"].astype(bool)
    out["unjustified_ms"] = out["span_id"].map(unjustified(store, trace_id.strip().lower())).astype(float)
    return out[COLUMNS]


def _tree_order(runs: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Depth first; a run whose parent is unknown is a root, and so is the earliest run of a circle."""
    place = {span: i for i, span in enumerate(runs["span_id"])}
    children: dict[int, list[int]] = defaultdict(list)
    roots: list[int] = []
    for i, parent in enumerate(runs["parent_span_id"]):
        above = place.get(parent, -1)
        (children[above] if above not in (-1, i) else roots).append(i)
    order: list[int] = []
    depth: list[int] = []
    seen: set[int] = set()
    for start in [*roots, *range(len(runs))]:
        stack = [(start, 0)]
        while stack:
            at, level = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            order.append(at)
            depth.append(level)
            stack += [(child, level + 1) for child in reversed(children[at])]
    return order, depth
