"""One failing request shows errors on many spans up the chain: which failure is the root, which are its echoes.

Must stay true: a request whose only failure is at the bottom counts once, at the bottom; an unrelated failure above still counts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

DEEPEST = 64
Ints = NDArray[np.int64]


def mark(tree: pd.DataFrame) -> pd.DataFrame:
    """`tree`: one row a span with TraceId, SpanId, ParentSpanId, Start, Duration (ns), Failed, ErrorType, ErrorMessage.

    Returns it with Echo (1: only repeats a failure below it), Recovered (1: the request's root did not fail) and
    RequestDuration (ns of the root, or of the longest span where the root never came).
    """
    out = tree.reset_index(drop=True)
    own = pd.Index(out["TraceId"] + "\x1f" + out["SpanId"])
    parent = own.get_indexer(pd.Index(out["TraceId"] + "\x1f" + out["ParentSpanId"]))
    parent = np.where(out["ParentSpanId"].to_numpy() == "", -1, parent).astype(np.int64)
    parent[parent == np.arange(len(out))] = -1
    failed = out["Failed"].to_numpy().astype(bool)
    out["Echo"] = _echoes(out, parent, failed)
    roots = out[parent < 0]
    longest = out.groupby("TraceId")["Duration"].max()
    by_root = roots.groupby("TraceId").agg(Failed=("Failed", "max"), Duration=("Duration", "max"))
    out["Recovered"] = 1 - out["TraceId"].map(by_root["Failed"]).fillna(1).astype(int).clip(0, 1)
    out["RequestDuration"] = (
        out["TraceId"].map(by_root["Duration"]).fillna(out["TraceId"].map(longest)).astype("uint64")
    )
    return out


def _echoes(tree: pd.DataFrame, parent: Ints, failed: NDArray[np.bool_]) -> Ints:
    below, above = _nearest_failed(parent, failed)
    echo = np.zeros(len(tree), dtype=np.int64)
    if not len(below):
        return echo
    start = tree["Start"].to_numpy().astype(np.int64)
    end = start + tree["Duration"].to_numpy().astype(np.int64)
    last_good = np.full(len(tree), np.iinfo(np.int64).min)
    good = np.flatnonzero(~failed & (parent >= 0))
    np.maximum.at(last_good, parent[good], start[good])
    last_bad = np.full(len(tree), np.iinfo(np.int64).min)
    np.maximum.at(last_bad, above, end[below])
    types = tree["ErrorType"].to_numpy()
    texts = tree["ErrorMessage"].to_numpy()
    for low, high in zip(below.tolist(), above.tolist(), strict=True):
        nothing_after = last_good[high] < last_bad[high]
        if nothing_after or _repeats(str(texts[high]), str(types[high]), str(texts[low]), str(types[low])):
            echo[high] = 1
    return echo


def _nearest_failed(parent: Ints, failed: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Pairs (failed row, its nearest failed ancestor)."""
    low = np.flatnonzero(failed)
    cursor = parent[low]
    pairs: list[tuple[Ints, Ints]] = []
    for _ in range(DEEPEST):
        alive = cursor >= 0
        low, cursor = low[alive], cursor[alive]
        if not len(low):
            break
        hit = failed[cursor]
        pairs.append((low[hit], cursor[hit]))
        low, cursor = low[~hit], parent[cursor[~hit]]
    if not pairs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _repeats(text: str, kind: str, below_text: str, below_kind: str) -> bool:
    """Whether the upper failure says nothing that the lower one did not say."""
    text, below_text = text.strip(), below_text.strip()
    if not text or text == below_text:
        return True
    shorter, longer = sorted((text, below_text), key=len)
    return (len(shorter) >= 8 and shorter in longer) or (
        bool(below_kind) and (below_kind == kind or below_kind in text)
    )
