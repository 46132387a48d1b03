"""The marks of the exam: what counts as right, false, missed and wrongly named. One short sitting runs the whole pipeline."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from analytics.findings import Evidence, Finding, finding_key
from bench.exam import Plan, hide_tokens, shipped, sit
from bench.exam_marks import Sheet, report
from tests.analytics.stage_world import START, World
from tests.analytics.test_run import finding, week


def named(stage: str, cause: str, dimension: str = "") -> Finding:
    base = finding(week(0), stage)
    return replace(
        base, key=finding_key("slow", stage, cause), cause=cause, subject={**base.subject, "dimension": dimension}
    )


def sheet(
    expect: list[dict[str, Any]],
    findings: list[Finding],
    faults: list[dict[str, Any]] | None = None,
    failures: tuple[Finding, ...] = (),
) -> Sheet:
    truth = {"expect": expect, "faults": faults or [], "start": at(0), "end": at(600)}
    return Sheet("case", 1, truth, tuple(findings), 0.1, failures)


def at(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fault(stage: str, first: int, last: int, **where: str) -> dict[str, Any]:
    return {"stage": stage, "cause": "retry", "start": at(first), "end": at(last), "where": where}


def failed(scene: str) -> Finding:
    return replace(named("a", "unknown"), kind="failure", evidence=(Evidence("scene", scene),))


def test_all_right() -> None:
    marks = report([sheet([{"stage": "a", "cause": "retry"}], [named("a", "retry")])])
    assert (marks["precision"], marks["recall"], marks["cause_accuracy"], marks["passed"]) == (1.0, 1.0, 1.0, True)


def test_false_missed_and_wrong_each_cost_their_own_mark() -> None:
    expect = [{"stage": "a", "cause": "retry"}, {"stage": "b", "cause": "payload"}]
    marks = report([sheet(expect, [named("a", "queueing"), named("c", "retry")])])
    assert marks["precision"] == 0.5
    assert marks["recall"] == 0.5
    assert marks["cause_accuracy"] == 0.0
    assert not marks["passed"]
    row = marks["per_scenario"]["case"]
    assert row["missed"] == ["b/payload (seed 1)"]
    assert row["wrong_cause"] == ["a/retry called queueing (seed 1)"]
    assert row["false"] == ["c/retry (seed 1)"]


def test_the_first_cause_counts_unless_two_are_expected_there() -> None:
    both = [named("a", "queueing"), named("a", "retry")]
    assert report([sheet([{"stage": "a", "cause": "retry"}], both)])["cause_accuracy"] == 0.0
    two = [{"stage": "a", "cause": "retry"}, {"stage": "a", "cause": "queueing"}]
    assert report([sheet(two, both)])["cause_accuracy"] == 1.0


def test_optional_counts_neither_way() -> None:
    expect = [{"stage": "a", "cause": "retry", "optional": True}, {"cluster": "tool_timeout", "optional": True}]
    assert report([sheet(expect, [named("a", "unknown")])])["precision"] == 1.0
    assert report([sheet(expect, [])])["recall"] == 1.0
    assert report([sheet(expect, [])])["cluster_recall"] == 1.0


def test_an_expected_cluster_must_be_among_the_failures() -> None:
    expect = [{"cluster": "tool_timeout"}, {"cluster": "kv_overflow"}]
    marks = report([sheet(expect, [], failures=(failed("kv_overflow"), failed("new")))])
    assert marks["cluster_recall"] == 0.5
    assert marks["healthy_sittings"] == 0
    assert not marks["passed"]
    assert marks["per_scenario"]["case"]["missed_clusters"] == ["tool_timeout (seed 1)"]


def test_a_failure_on_a_healthy_sheet_is_a_flag() -> None:
    marks = report([sheet([], [], failures=(failed("new"),))])
    assert marks["false_flags_on_healthy"] == 1
    assert not marks["passed"]


def test_always_bad_is_read_off_the_times_of_the_faults() -> None:
    expect = [{"stage": stage, "cause": "retry"} for stage in ("whole", "late", "early", "local", "built")]
    faults = [
        fault("whole", 0, 600),
        fault("late", 60, 600),
        fault("early", 0, 500),
        fault("local", 0, 600, region="eu"),
    ]
    sat = sheet(expect, [named("whole", "retry"), named("late", "retry")], faults)
    assert sat.always_bad() == [("whole", "retry"), ("built", "retry")]
    assert report([sat])["recall_always_bad"] == 0.5


def test_any_flag_on_a_healthy_sheet_fails() -> None:
    marks = report([sheet([], [named("a", "retry")]), sheet([], [])])
    assert marks["false_flags_on_healthy"] == 1
    assert marks["healthy_sittings"] == 2
    assert not marks["passed"]


def test_places_are_marked_against_where() -> None:
    faults = [{"stage": "a", "kind": "dimension_specific", "where": {"region": ["ap"]}}]
    expect = [{"stage": "a", "cause": "dimension_specific"}]
    assert report([sheet(expect, [named("a", "dimension_specific", "region=ap")], faults)])["place_accuracy"] == 1.0
    assert report([sheet(expect, [named("a", "dimension_specific", "region=eu")], faults)])["place_accuracy"] == 0.0


def test_blinding_hides_tokens_on_a_third_of_the_stages() -> None:
    data = World(seed=61, traces=250).data()
    blind = hide_tokens(data, 1 / 3)
    known = lambda runs: set(runs.loc[runs["input_tokens"].notna(), "stage"])  # noqa: E731
    assert len(known(data.runs)) == 7
    assert len(known(blind.runs)) == 4
    assert START.timestamp() <= blind.runs["ts"].min()


@pytest.mark.slow
def test_one_sitting_through_the_whole_pipeline(tmp_path: Path) -> None:
    done = sit(Plan(shipped() / "prompt_bloat.toml", 5, 150.0, 0.0), tmp_path / "store")
    assert done.expected == [("tool_select", "prompt_bloat")]
    assert done.causes("tool_select") == ["prompt_bloat"]
    assert done.false() == []
