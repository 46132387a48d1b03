"""The exam every analyzer sits: empty, healthy, shuffled, doubled, a week later, with an unrelated service beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from analytics.findings import Analyzer, Finding


class World(NamedTuple):
    """Data of one analyzer in the states the exam asks for; each a function so that no state leaks into another."""

    empty: Callable[[], Any]
    healthy: Callable[[], Any]
    faulty: Callable[[], Any]
    shuffled: Callable[[], Any]
    doubled: Callable[[], Any]
    week_later: Callable[[], Any]
    with_stranger: Callable[[], Any]


def keys(findings: Sequence[Finding]) -> set[str]:
    return {finding.key for finding in findings}


def no_data_no_findings(analyzer: Analyzer, world: World) -> None:
    assert list(analyzer.find(world.empty())) == []


def a_healthy_week_has_none(analyzer: Analyzer, world: World) -> None:
    assert [finding.title for finding in analyzer.find(world.healthy())] == []


def a_fault_is_found_and_said_whole(analyzer: Analyzer, world: World) -> None:
    found = analyzer.find(world.faulty())
    assert found
    for finding in found:
        assert finding.title
        assert finding.recommendation
        assert finding.verify
        assert finding.evidence
        assert finding.trace_ids
        assert finding.lost_low <= finding.lost_seconds <= finding.lost_high
        assert finding.window.start <= finding.first_seen <= finding.last_seen <= finding.window.end
        assert Finding.from_json(finding.to_json()).key == finding.key


def order_of_rows_changes_nothing(analyzer: Analyzer, world: World) -> None:
    assert [f.to_json() for f in analyzer.find(world.shuffled())] == [
        f.to_json() for f in analyzer.find(world.faulty())
    ]


def doubled_traffic_has_the_same_problems(analyzer: Analyzer, world: World) -> None:
    assert keys(analyzer.find(world.doubled())) == keys(analyzer.find(world.faulty()))


def keys_stay_a_week_later(analyzer: Analyzer, world: World) -> None:
    assert keys(analyzer.find(world.week_later())) == keys(analyzer.find(world.faulty()))


def a_stranger_changes_nothing(analyzer: Analyzer, world: World) -> None:
    assert keys(analyzer.find(world.with_stranger())) == keys(analyzer.find(world.faulty()))


EXAM: tuple[Callable[[Analyzer, World], None], ...] = (
    no_data_no_findings,
    a_healthy_week_has_none,
    a_fault_is_found_and_said_whole,
    order_of_rows_changes_nothing,
    doubled_traffic_has_the_same_problems,
    keys_stay_a_week_later,
    a_stranger_changes_nothing,
)
