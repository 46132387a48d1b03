"""Spans as a forest of arrays: parents, duplicates, cycles, levels, and clocks put in order (docs/stages.md).

Must stay true: every span that is not a duplicate stands in exactly one tree, whatever the input says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]

OTHER, CLIENT, SERVER, UNSPECIFIED = 0, 1, 2, 3
NONE = -1
CYCLE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Spans:
    """n spans. `span` and `parent` are hashes of (trace, id); parent 0 means none. `side` is OTHER, CLIENT, SERVER or UNSPECIFIED."""

    trace: Hashes
    span: Hashes
    parent: Hashes
    start_ns: Ints
    duration_ns: Ints
    service: Ints
    side: Ints

    def __len__(self) -> int:
        return len(self.span)

    def take(self, index: NDArray[np.intp] | Flags) -> Spans:
        """The spans at `index`."""
        return Spans(
            self.trace[index],
            self.span[index],
            self.parent[index],
            self.start_ns[index],
            self.duration_ns[index],
            self.service[index],
            self.side[index],
        )


@dataclass(frozen=True, slots=True)
class Forest:
    """Spans without duplicates. `parent` is an index or NONE; `order` lists the children grouped by parent, those of
    span i being `order[first[i] : first[i] + count[i]]`; `levels` are the spans by depth, roots first."""

    spans: Spans
    kept: NDArray[np.intp]
    parent: Ints
    order: Ints
    first: Ints
    count: Ints
    levels: Sequence[Ints]
    orphan: Flags
    cycle: Flags


def forest(spans: Spans) -> Forest:
    """Drop duplicates, find parents, cut cycles at their earliest span, and lay the spans out by depth.

    After CYCLE_ROUNDS cycles in one trace every span that still hangs on one becomes a root.
    """
    kept, parent = _parents(spans)
    mine = spans.take(kept)
    orphan = (mine.parent != 0) & (parent == NONE)
    cycle = parent == np.arange(len(mine))
    parent[cycle] = NONE
    levels = _levels(parent)
    rounds = 0
    while sum(len(level) for level in levels) < len(mine):
        cut = _unreached(mine, levels, every=rounds == CYCLE_ROUNDS)
        parent[cut] = NONE
        cycle[cut] = True
        levels = _levels(parent)
        rounds += 1
    order, first, count = _children(parent)
    return Forest(mine, kept, parent, order, first, count, levels, orphan, cycle)


def _parents(spans: Spans) -> tuple[NDArray[np.intp], Ints]:
    """Indexes of the spans that stay, and the parent of each as an index among those that stay."""
    by_id = np.argsort(spans.span, kind="stable")
    ids = spans.span[by_id]
    repeated = np.zeros(len(ids), np.bool_)
    repeated[1:] = ids[1:] == ids[:-1]
    caller_of: dict[int, int] = {}
    if repeated.any():
        by_id, caller_of = _without_duplicates(spans, by_id, ids, repeated)
    kept = np.sort(by_id)
    place = np.full(len(spans), NONE, np.int64)
    place[kept] = np.arange(len(kept))
    ids = spans.span[by_id]
    wanted = spans.parent[kept]
    found = np.searchsorted(ids, wanted)
    found[found == len(ids)] = 0
    hit = (wanted != 0) & (ids[found] == wanted) if len(ids) else np.zeros(0, np.bool_)
    parent = np.where(hit, place[by_id[found]], NONE) if len(ids) else np.zeros(0, np.int64)
    for served, caller in caller_of.items():
        parent[place[served]] = place[caller]
    return kept, parent


def _without_duplicates(
    spans: Spans, by_id: NDArray[np.intp], ids: Hashes, repeated: Flags
) -> tuple[NDArray[np.intp], dict[int, int]]:
    """Of spans with one id keep the longest; a client and a server sharing one id (as in Zipkin) both stay, the server
    as the client's child and first in the order, so that further children hang below the server."""
    shared = repeated.copy()
    shared[:-1] |= repeated[1:]
    groups: dict[int, dict[bool, int]] = {}
    for index, key in zip(by_id[shared].tolist(), ids[shared].tolist(), strict=True):
        group = groups.setdefault(key, {})
        served = int(spans.side[index]) == SERVER
        if served not in group or spans.duration_ns[index] > spans.duration_ns[group[served]]:
            group[served] = index
    chosen: list[int] = []
    caller_of: dict[int, int] = {}
    for group in groups.values():
        both = True in group and False in group and int(spans.side[group[False]]) == CLIENT
        if both:
            caller_of[group[True]] = group[False]
            chosen += [group[True], group[False]]
        else:
            chosen.append(max(group.values(), key=lambda index: int(spans.duration_ns[index])))
    merged = np.concatenate([by_id[~shared], np.array(chosen, np.intp)])
    return merged[np.argsort(spans.span[merged], kind="stable")], caller_of


def _children(parent: Ints) -> tuple[Ints, Ints, Ints]:
    child = np.flatnonzero(parent != NONE)
    order = child[np.argsort(parent[child], kind="stable")]
    count = np.bincount(parent[child], minlength=len(parent)).astype(np.int64)
    first = np.cumsum(count) - count
    return order, first, count


def _levels(parent: Ints) -> list[Ints]:
    order, first, count = _children(parent)
    levels: list[Ints] = []
    level = np.flatnonzero(parent == NONE)
    while len(level):
        levels.append(level)
        counts = count[level]
        total = int(counts.sum())
        ahead = np.cumsum(counts) - counts
        level = order[np.repeat(first[level] - ahead, counts) + np.arange(total)]
    return levels


def _unreached(spans: Spans, levels: Sequence[Ints], *, every: bool) -> Ints:
    """Of the spans that hang on a cycle the earliest one of each trace, or `every` one."""
    left = np.ones(len(spans), np.bool_)
    for level in levels:
        left[level] = False
    index = np.flatnonzero(left)
    if every:
        return index
    ranked = index[np.lexsort((spans.span[index], spans.start_ns[index], spans.trace[index]))]
    traces = spans.trace[ranked]
    head = np.ones(len(ranked), np.bool_)
    head[1:] = traces[1:] != traces[:-1]
    return ranked[head]


def callee(trees: Forest) -> Ints:
    """For each span the one server child on another service of a client span, or NONE (none, or several)."""
    found = np.full(len(trees.spans), NONE, np.int64)
    child = np.flatnonzero(trees.parent != NONE)
    above = trees.parent[child]
    side, service = trees.spans.side, trees.spans.service
    served = (side[child] == SERVER) | (side[child] == UNSPECIFIED)
    calls = (side[above] == CLIENT) | (side[above] == UNSPECIFIED)
    away = served & calls & (service[child] != service[above])
    child, above = child[away], above[away]
    alone = np.bincount(above, minlength=len(found)) == 1
    single = alone[above]
    found[above[single]] = child[single]
    return found


def aligned_starts(trees: Forest, served: Ints) -> tuple[Ints, Flags]:
    """Starts (ns) with each server child moved, with all below it, into its client span where its clock says otherwise.

    Only a child that fits into its client span is moved, and no further than to its nearest end. Returns also which
    spans lay outside their parent as written.
    """
    start, duration = trees.spans.start_ns, trees.spans.duration_ns
    shift = np.zeros(len(trees.spans), np.int64)
    outside = np.zeros(len(trees.spans), np.bool_)
    for level in trees.levels[1:]:
        above = trees.parent[level]
        shift[level] = shift[above]
        late = start[level] - start[above]
        room = duration[above] - duration[level]
        outside[level] = (late < 0) | (late > room)
        paired = (served[above] == level) & (room >= 0)
        moved = np.clip(late, 0, np.maximum(room, 0)) - late
        shift[level] += np.where(paired, moved, 0)
    return start + shift, outside
