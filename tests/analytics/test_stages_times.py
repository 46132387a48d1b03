"""Self time, critical path, gaps and odd trees, held against a slow and simple reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.stages_times import Times, times
from analytics.stages_tree import CLIENT, NONE, OTHER, SERVER, UNSPECIFIED, Spans


@dataclass(frozen=True)
class Row:
    id: int
    parent: int
    start: int
    duration: int
    service: int = 0
    side: int = OTHER
    trace: int = 1


def spans(rows: Sequence[Row]) -> Spans:
    def column(name: str, kind: type) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], kind)

    return Spans(
        column("trace", np.uint64),
        column("id", np.uint64),
        column("parent", np.uint64),
        column("start", np.int64),
        column("duration", np.int64),
        column("service", np.int64),
        column("side", np.int64),
    )


def by_id(found: Times, name: str) -> dict[int, int]:
    return dict(zip(found.trees.spans.span.tolist(), getattr(found, name).tolist(), strict=True))


def solve(*rows: Row) -> Times:
    return times(spans(rows))


class Reference:
    """The definitions of docs/stages.md, one span at a time."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {row.id: row for row in rows}
        self.children: dict[int, list[Row]] = {row.id: [] for row in rows}
        for row in rows:
            if row.parent in self.rows:
                self.children[row.parent].append(row)
        self.critical = dict.fromkeys(self.rows, 0)

    def self_time(self, row: Row) -> int:
        covered: set[int] = set()
        for child in self.children[row.id]:
            covered |= set(
                range(max(child.start, row.start), min(child.start + child.duration, row.start + row.duration))
            )
        return row.duration - len(covered)

    def reach(self, row: Row) -> int:
        return max([row.start + row.duration, *(self.reach(child) for child in self.children[row.id])])

    def walk(self, row: Row, low: int, high: int) -> None:
        cursor = high
        while cursor > low:
            running = [c for c in self.children[row.id] if c.start < cursor <= self.reach(c)]
            if running:
                child = min(running, key=lambda c: c.start)
                below = max(child.start, low)
                self.walk(child, below, cursor)
                cursor = below
                continue
            ended = [self.reach(c) for c in self.children[row.id] if low < self.reach(c) < cursor]
            self.credit(row, max(ended, default=low), cursor)
            cursor = max(ended, default=low)
            if ended and not any(c.start < cursor <= self.reach(c) for c in self.children[row.id]):
                cursor = self._skip_empty(row, cursor, low)

    def _skip_empty(self, row: Row, cursor: int, low: int) -> int:
        """Children of no length end here: they take no time, go on below them."""
        ended = [self.reach(c) for c in self.children[row.id] if low < self.reach(c) < cursor]
        self.credit(row, max(ended, default=low), cursor)
        return max(ended, default=low)

    def credit(self, row: Row, low: int, high: int) -> None:
        inside = max(0, min(high, row.start + row.duration) - low)
        self.critical[row.id] += inside
        self.critical[row.parent if row.parent in self.rows else row.id] += high - low - inside


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    size = draw(st.integers(1, 14))
    rows = [Row(1, 0, 0, draw(st.integers(1, 60)))]
    for index in range(2, size + 1):
        above = draw(st.sampled_from(rows))
        start = above.start + draw(st.integers(-4, 40))
        rows.append(Row(index, above.id, start, draw(st.integers(0, 40))))
    return rows


@settings(max_examples=400, deadline=None)
@given(trees(), st.randoms(use_true_random=False))
def test_times_agree_with_the_reference(rows: list[Row], random: object) -> None:
    reference = Reference(rows)
    root = rows[0]
    reference.walk(root, root.start, root.start + root.duration)
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = solve(*shuffled)
    assert by_id(found, "self_ns") == {row.id: reference.self_time(row) for row in rows}
    critical = by_id(found, "critical_ns")
    assert sum(critical.values()) == root.duration
    assert {i: critical[i] for i in critical} == reference.critical


@settings(max_examples=150, deadline=None)
@given(st.lists(trees(), min_size=2, max_size=4))
def test_a_trace_does_not_care_about_its_neighbours(many: list[list[Row]]) -> None:
    alone, together = [], []
    for number, rows in enumerate(many):
        one = solve(*rows)
        alone.append({number * 100 + i: v for i, v in by_id(one, "critical_ns").items()})
        together += [
            Row(row.id + number * 100, row.parent and row.parent + number * 100, row.start, row.duration, trace=number)
            for row in rows
        ]
    found = by_id(solve(*together), "critical_ns")
    assert found == {key: value for part in alone for key, value in part.items()}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(0, 8), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=14
    )
)
def test_any_links_give_each_id_once_and_times_in_bounds(links: list[tuple[int, int, int, int]]) -> None:
    found = solve(*(Row(*link) for link in links))
    ids = found.trees.spans.span.tolist()
    assert sorted(ids) == sorted({link[0] for link in links})
    assert (found.self_ns >= 0).all()
    assert (found.self_ns <= found.trees.spans.duration_ns).all()
    assert (found.critical_ns >= 0).all()
    assert sum(len(level) for level in found.trees.levels) == len(ids)


def test_duplicates_are_dropped_and_the_longest_stays() -> None:
    found = solve(Row(1, 0, 0, 10), Row(2, 1, 2, 3), Row(2, 1, 2, 5), Row(2, 1, 2, 3))
    assert by_id(found, "self_ns") == {1: 5, 2: 5}


def test_client_and_server_sharing_an_id_become_parent_and_child() -> None:
    rows = [Row(7, 0, 0, 10, 0, CLIENT), Row(7, 0, 2, 6, 1, SERVER), Row(8, 7, 3, 2, 1)]
    found = solve(*rows)
    assert len(found.trees.spans) == 3
    client = int(np.flatnonzero(found.trees.spans.side == CLIENT)[0])
    server = int(np.flatnonzero(found.trees.spans.side == SERVER)[0])
    assert found.trees.parent[server] == client
    assert found.trees.parent[int(np.flatnonzero(found.trees.spans.span == 8)[0])] == server
    assert (found.gap_ns[client], found.request_ns[client], found.response_ns[client]) == (4, 2, 2)


@pytest.mark.parametrize(
    ("server_start", "request_ns"), [(130, 30), (100, 0), (40, 0), (199, 60), (160, 60), (9999, 60)]
)
def test_a_leg_is_never_longer_than_its_gap(server_start: int, request_ns: int) -> None:
    found = solve(Row(1, 0, 100, 100, 0, CLIENT), Row(2, 1, server_start, 40, 1, SERVER))
    assert found.gap_ns.max() == 60
    assert (found.request_ns.max(), found.response_ns.max()) == (request_ns, 60 - request_ns)


def test_a_clock_that_is_off_moves_the_server_and_all_below_it() -> None:
    off = 5_000_000
    right = [Row(1, 0, 0, 100), Row(2, 1, 10, 80, 0, CLIENT), Row(3, 2, 10, 60, 1, SERVER), Row(4, 3, 20, 30, 1)]
    wrong = [*right[:2], *(Row(r.id, r.parent, r.start - off, r.duration, r.service, r.side) for r in right[2:])]
    assert by_id(solve(*wrong), "self_ns") == by_id(solve(*right), "self_ns")
    assert by_id(solve(*wrong), "critical_ns") == by_id(solve(*right), "critical_ns")
    assert by_id(solve(*wrong), "outside")[3] == 1
    assert not any(by_id(solve(*right), "outside").values())


def test_no_gap_without_exactly_one_server_on_another_service() -> None:
    client = Row(1, 0, 0, 10, 0, CLIENT)
    for children in (
        [Row(2, 1, 1, 3, 0, SERVER)],
        [Row(2, 1, 1, 3, 1, SERVER), Row(3, 1, 5, 3, 1, SERVER)],
        [Row(2, 1, 1, 3, 1, OTHER)],
        [],
    ):
        assert (solve(client, *children).gap_ns == -1).all()
    assert (solve(Row(1, 0, 0, 10, 0, OTHER), Row(2, 1, 1, 3, 1, SERVER)).gap_ns == -1).all()
    plain = solve(Row(1, 0, 0, 10, 0, UNSPECIFIED), Row(2, 1, 1, 3, 1, UNSPECIFIED))
    assert by_id(plain, "gap_ns") == {1: 7, 2: -1}


def test_a_server_that_outlives_its_client_has_a_gap_of_zero() -> None:
    found = solve(Row(1, 0, 0, 10, 0, CLIENT), Row(2, 1, 5, 50, 1, SERVER))
    assert by_id(found, "gap_ns")[1] == 0
    assert by_id(found, "critical_ns") == {1: 5, 2: 5}


def test_an_async_child_that_outlives_its_parent_is_what_the_root_waits_for() -> None:
    found = solve(Row(1, 0, 0, 40), Row(2, 1, 0, 10), Row(3, 2, 5, 25))
    assert by_id(found, "critical_ns") == {1: 10, 2: 5, 3: 25}


def test_missing_parents_make_marked_roots_and_several_roots_each_have_a_path() -> None:
    found = solve(Row(1, 0, 0, 10), Row(2, 99, 2, 5), Row(3, 0, 20, 10))
    assert by_id(found, "critical_ns") == {1: 10, 2: 0, 3: 10}
    assert dict(zip(found.trees.spans.span.tolist(), found.trees.orphan.tolist(), strict=True)) == {
        1: False,
        2: True,
        3: False,
    }
    assert set(found.trace_ns.tolist()) == {30}
    alone = solve(Row(2, 99, 2, 5), Row(3, 98, 20, 10))
    assert by_id(alone, "critical_ns") == {2: 5, 3: 10}
    assert set(alone.trace_ns.tolist()) == {28}


def test_cycles_are_cut_at_the_earliest_span() -> None:
    found = solve(Row(1, 3, 0, 10), Row(2, 1, 1, 5), Row(3, 2, 2, 3), Row(4, 4, 0, 1))
    tree = found.trees
    assert set(tree.spans.span[tree.cycle].tolist()) == {1, 4}
    assert by_id(found, "critical_ns") == {1: 5, 2: 2, 3: 3, 4: 1}


def test_many_cycles_in_one_trace_end() -> None:
    rows = [row for i in range(1, 4001, 2) for row in (Row(i, i + 1, i, 5), Row(i + 1, i, i, 3))]
    assert (solve(*rows).trees.cycle).sum() >= 2000


@pytest.mark.parametrize("shape", ["deep", "flat", "sequence"])
def test_large_traces(shape: str) -> None:
    count = 10_000
    rows = [Row(1, 0, 0, count * 10)]
    for i in range(2, count + 1):
        parent = i - 1 if shape == "deep" else 1
        start = (i - 2) * 10 if shape == "sequence" else i
        rows.append(Row(i, parent, start, 7 if shape == "sequence" else count * 10 - 2 * i))
    found = solve(*rows)
    assert int(found.critical_ns.sum()) == count * 10
    assert found.depth.max() == (count - 1 if shape == "deep" else 1)


def test_nothing_gives_nothing() -> None:
    found = solve()
    assert len(found.self_ns) == 0
    assert len(found.trees.levels) == 0
    assert NONE not in found.callee
