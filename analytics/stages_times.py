"""Self time, critical path and gaps of a forest of spans, on whole arrays (formulas in docs/stages.md).

Must stay true: the critical times of a tree add up to the duration of its root, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.stages_tree import NONE, Flags, Forest, Ints, Spans, aligned_starts, callee, forest

KEY_BITS = 63


@dataclass(frozen=True, slots=True)
class Times:
    """Per span that stays (n, times in ns). `request_ns`, `response_ns` are the legs of the gap, -1 where there is none."""

    trees: Forest
    start_ns: Ints
    depth: Ints
    self_ns: Ints
    critical_ns: Ints
    gap_ns: Ints
    request_ns: Ints
    response_ns: Ints
    callee: Ints
    trace_ns: Ints
    outside: Flags


def times(spans: Spans) -> Times:
    """All times of `spans` (whole traces, in any order: they are sorted by trace, start and id first)."""
    trees = forest(_sorted(spans))
    served = callee(trees)
    start, outside = aligned_starts(trees, served)
    own = self_times(trees, start)
    critical = critical_times(trees, start)
    gap, request, response = _gaps(trees, start, served)
    depth = np.zeros(len(trees.spans), np.int64)
    for number, level in enumerate(trees.levels):
        depth[level] = number
    return Times(
        trees, start, depth, own, critical, gap, request, response, served, _trace_extent(trees, start), outside
    )


def _sorted(spans: Spans) -> Spans:
    trace, start, span = spans.trace, spans.start_ns, spans.span
    tied = trace[1:] == trace[:-1]
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (span[1:] >= span[:-1]))
    if np.all((trace[1:] > trace[:-1]) | (tied & later)):
        return spans
    return spans.take(np.lexsort((span, start, trace)))


def self_times(trees: Forest, start: Ints) -> Ints:
    """Duration minus the union of the children, each clipped into its parent: (n,) ns."""
    duration = trees.spans.duration_ns
    child = trees.order
    above = trees.parent[child]
    low = np.maximum(start[child], start[above])
    high = np.maximum(np.minimum(start[child] + duration[child], start[above] + duration[above]), low)
    if not _ascending(above, low):
        rank = np.lexsort((low, above))
        above, low, high = above[rank], low[rank], high[rank]
    before = _running_max(above, high)
    added = np.maximum(high - np.maximum(low, before), 0)
    total = np.concatenate([[0], np.cumsum(added)])
    covered = total[trees.first + trees.count] - total[trees.first]
    return np.asarray(duration - covered, np.int64)


def _ascending(group: Ints, value: Ints) -> bool:
    return bool(np.all((value[1:] >= value[:-1]) | (group[1:] != group[:-1])))


def _running_max(group: Ints, value: Ints) -> Ints:
    """The largest earlier value of the same group (groups lie together), or the smallest int64."""
    lowest = np.iinfo(np.int64).min
    best = np.full(len(value), lowest, np.int64)
    if len(value) == 0:
        return best
    best[1:] = np.where(group[1:] == group[:-1], value[:-1], lowest)
    longest = int(np.bincount(group).max())
    step = 1
    while step < longest:
        same = group[step:] == group[:-step]
        best[step:] = np.where(same, np.maximum(best[step:], best[:-step]), best[step:])
        step *= 2
    return best


def _gaps(trees: Forest, start: Ints, served: Ints) -> tuple[Ints, Ints, Ints]:
    """Gap = client duration − server duration, split into its request and response leg; -1 where there is no pair."""
    found = np.flatnonzero(served != NONE)
    child = served[found]
    duration = trees.spans.duration_ns
    gap, request, response = (np.full(len(served), -1, np.int64) for _ in range(3))
    gap[found] = np.maximum(duration[found] - duration[child], 0)
    request[found] = np.clip(start[child] - start[found], 0, gap[found])
    response[found] = gap[found] - request[found]
    return gap, request, response


def _trace_extent(trees: Forest, start: Ints) -> Ints:
    """From the first start to the last end of the trace's roots; orphans count only where a trace has no true root."""
    root = trees.parent == NONE
    trace = trees.spans.trace
    _, code = np.unique(trace, return_inverse=True)
    groups = int(code.max()) + 1 if len(code) else 0
    true_root = root & ~trees.orphan
    has_true = np.zeros(groups, np.bool_)
    has_true[code[true_root]] = True
    counts = true_root | (root & ~has_true[code])
    low = np.full(groups, np.iinfo(np.int64).max)
    high = np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(low, code[counts], start[counts])
    np.maximum.at(high, code[counts], (start + trees.spans.duration_ns)[counts])
    return np.asarray((high - low)[code], np.int64)


@dataclass(frozen=True, slots=True)
class _Siblings:
    """Children of every span sorted by (parent, end), of equal ends the first child last: `key` is both in one number,
    `best[i]` is where the child stands that starts first among i and its later siblings."""

    child: Ints
    key: Ints
    best: Ints
    bits: int
    first: Ints


def critical_times(trees: Forest, start: Ints) -> Ints:
    """Time each span is itself what its root waits for: walking back from the root's end, time belongs to the child
    that is running then (of several the one that started first), else to the span itself. (n,) ns."""
    end = start + trees.spans.duration_ns
    reach = end.copy()
    for level in trees.levels[:0:-1]:
        np.maximum.at(reach, trees.parent[level], reach[level])
    siblings = _siblings(trees, start, reach)
    critical = np.zeros(len(start), np.int64)
    walk = _Walk(trees, start, end, reach, siblings, critical)
    roots = np.flatnonzero(_walked_roots(trees))
    span, low, high = roots, start[roots], end[roots]
    while len(span):
        span, low, high = walk.step(span, low, high)
    return critical


def _walked_roots(trees: Forest) -> Flags:
    root = trees.parent == NONE
    true_root = root & ~trees.orphan
    known = np.unique(trees.spans.trace[true_root])
    walked: Flags = true_root | (root & ~np.isin(trees.spans.trace, known))
    return walked


def _siblings(trees: Forest, start: Ints, reach: Ints) -> _Siblings:
    bits = KEY_BITS - max(1, len(start).bit_length())
    child = trees.order[::-1]
    above = trees.parent[child]
    key = _key(above, reach[child] - start[above], bits)
    rank = np.argsort(key, kind="stable")
    child, key = child[rank], key[rank]
    best = _suffix_first(trees.parent[child], start[child], child)
    return _Siblings(child, key, best, bits, trees.first)


def _key(parent: Ints, offset: Ints, bits: int) -> Ints:
    return (parent << bits) | np.clip(offset, 0, (1 << bits) - 1)


def _suffix_first(group: Ints, start: Ints, child: Ints) -> Ints:
    """For each place where the smallest (start, child) at it or later in its group stands."""
    best = np.arange(len(start))
    if len(start) == 0:
        return best
    longest = int(np.bincount(group).max())
    step = 1
    while step < longest:
        mine, other = best[:-step], best[step:]
        sooner = (start[other] < start[mine]) | ((start[other] == start[mine]) & (child[other] < child[mine]))
        better = (group[:-step] == group[step:]) & sooner
        best = np.concatenate([np.where(better, other, mine), best[-step:]])
        step *= 2
    return best


@dataclass(frozen=True, slots=True)
class _Walk:
    """The walk back along critical paths, one step for every open cursor at a time."""

    trees: Forest
    start: Ints
    end: Ints
    reach: Ints
    siblings: _Siblings
    critical: Ints

    def step(self, span: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
        """A cursor is (span, low, high): the window of `span` that is still to be given away, ending at `high`.

        The stretch after the last child in it is the span's own; the child gets its window; what lies before the child
        is the next cursor.
        """
        child, child_high = self._last_child(span, low, high)
        has = child != NONE
        own_from = np.where(has, child_high, low)
        self._credit(span, own_from, high)
        above, child, child_high, low = span[has], child[has], child_high[has], low[has]
        child_low = np.maximum(self.start[child], low)
        more = child_low > low
        return (
            np.concatenate([child, above[more]]),
            np.concatenate([child_low, low[more]]),
            np.concatenate([child_high, child_low[more]]),
        )

    def _last_child(self, span: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The child running just before `high`, else the last to end before it; NONE when none lies in the window."""
        siblings, trees = self.siblings, self.trees
        begin, stop = trees.first[span], trees.first[span] + trees.count[span]
        cursor = _key(span, high - self.start[span], siblings.bits)
        place = np.searchsorted(siblings.key, cursor)
        running = self._best(np.minimum(place, np.maximum(len(siblings.child) - 1, 0)))
        is_running = (place < stop) & (self.start[running] < high)
        earlier = self._best(np.maximum(place - 1, 0))
        has_earlier = (place - 1 >= begin) & (place - 1 < stop)
        child = np.where(is_running, running, np.where(has_earlier, earlier, NONE))
        before = self._child(np.maximum(place - 1, 0))
        child_high = np.where(is_running, high, self.reach[before])
        return np.where(child_high > low, child, NONE), child_high

    def _best(self, place: Ints) -> Ints:
        return self._child(self.siblings.best[place] if len(self.siblings.best) else place)

    def _child(self, place: Ints) -> Ints:
        return self.siblings.child[place] if len(self.siblings.child) else np.zeros(len(place), np.int64)

    def _credit(self, span: Ints, low: Ints, high: Ints) -> None:
        """Give [low, high) to `span`; what lies outside it (before an async child that outlives it) to its parent."""
        inside = np.maximum(np.minimum(high, self.end[span]) - low, 0)
        rest = (high - low) - inside
        above = np.where(self.trees.parent[span] == NONE, span, self.trees.parent[span])
        np.add.at(self.critical, span, inside)
        np.add.at(self.critical, above, rest)
