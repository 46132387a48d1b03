"""The marks of the exam: what counts as right, false, missed and wrongly named. One short sitting runs the whole pipeline."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.exam import main, shipped
from bench.exam_marks import Result, Said, report
from bench.exam_names import other_names
from bench.exam_sit import Plan, hide_tokens, sit
from bench.exam_wild import world, write_worlds
from instrumented_stack.read import read
from tests.analytics.stage_world import START, World


def sheet(
    expect: list[dict[str, Any]],
    findings: list[Said],
    faults: list[dict[str, Any]] | None = None,
    scenes: tuple[str, ...] = (),
) -> Result:
    truth = {"expect": expect, "faults": faults or [], "start": at(0), "end": at(600)}
    return Result("case", 1, truth, tuple(findings), scenes)


def at(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fault(stage: str, first: int, last: int, **where: str) -> dict[str, Any]:
    return {"stage": stage, "cause": "retry", "start": at(first), "end": at(last), "where": where}


def test_all_right() -> None:
    marks = report([sheet([{"stage": "a", "cause": "retry"}], [Said("a", "retry")])])
    assert (marks["precision"], marks["recall"], marks["cause_accuracy"], marks["passed"]) == (1.0, 1.0, 1.0, True)


def test_false_missed_and_wrong_each_cost_their_own_mark() -> None:
    expect = [{"stage": "a", "cause": "retry"}, {"stage": "b", "cause": "payload"}]
    marks = report([sheet(expect, [Said("a", "queueing"), Said("c", "retry")])])
    assert marks["precision"] == 0.5
    assert marks["recall"] == 0.5
    assert marks["cause_accuracy"] == 0.0
    assert not marks["passed"]
    row = marks["per_scenario"]["case"]
    assert row["missed"] == ["b/payload (seed 1)"]
    assert row["wrong_cause"] == ["a/retry called queueing (seed 1)"]
    assert row["false"] == ["c/retry (seed 1)"]


def test_the_first_cause_counts_unless_two_are_expected_there() -> None:
    both = [Said("a", "queueing"), Said("a", "retry")]
    assert report([sheet([{"stage": "a", "cause": "retry"}], both)])["cause_accuracy"] == 0.0
    two = [{"stage": "a", "cause": "retry"}, {"stage": "a", "cause": "queueing"}]
    assert report([sheet(two, both)])["cause_accuracy"] == 1.0


def test_optional_counts_neither_way() -> None:
    expect = [{"stage": "a", "cause": "retry", "optional": True}, {"cluster": "tool_timeout", "optional": True}]
    assert report([sheet(expect, [Said("a", "unknown")])])["precision"] == 1.0
    assert report([sheet(expect, [])])["recall"] == 1.0
    assert report([sheet(expect, [])])["cluster_recall"] == 1.0


def test_an_expected_cluster_must_be_among_the_failures() -> None:
    expect = [{"cluster": "tool_timeout"}, {"cluster": "kv_overflow"}]
    marks = report([sheet(expect, [], scenes=("kv_overflow", "new"))])
    assert marks["cluster_recall"] == 0.5
    assert marks["healthy_sittings"] == 0
    assert not marks["passed"]
    assert marks["per_scenario"]["case"]["missed_clusters"] == ["tool_timeout (seed 1)"]


def test_a_failure_on_a_healthy_sheet_is_a_flag() -> None:
    marks = report([sheet([], [], scenes=("new",))])
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
    sat = sheet(expect, [Said("whole", "retry"), Said("late", "retry")], faults)
    assert next(sat.sheets()).always_bad() == [("whole", "retry"), ("built", "retry")]
    assert report([sat])["recall_always_bad"] == 0.5


def test_any_flag_on_a_healthy_sheet_fails() -> None:
    marks = report([sheet([], [Said("a", "retry")]), sheet([], [])])
    assert marks["false_flags_on_healthy"] == 1
    assert marks["healthy_sittings"] == 2
    assert not marks["passed"]


def test_places_are_marked_against_where() -> None:
    faults = [{"stage": "a", "kind": "dimension_specific", "where": {"region": ["ap"]}}]
    expect = [{"stage": "a", "cause": "dimension_specific"}]
    assert report([sheet(expect, [Said("a", "dimension_specific", "region=ap")], faults)])["place_accuracy"] == 1.0
    assert report([sheet(expect, [Said("a", "dimension_specific", "region=eu")], faults)])["place_accuracy"] == 0.0


def test_blinding_hides_tokens_on_a_third_of_the_stages() -> None:
    data = World(seed=61, traces=250).data()
    blind = hide_tokens(data, 1 / 3)
    known = lambda runs: set(runs.loc[runs["input_tokens"].notna(), "stage"])  # noqa: E731
    assert len(known(data.runs)) == 7
    assert len(known(blind.runs)) == 4
    assert START.timestamp() <= blind.runs["ts"].min()


def test_the_way_to_a_stage_takes_its_times_from_the_fault_of_that_stage() -> None:
    late = [{"stage": "c", "cause": "network_hop", "start": at(300), "end": at(600), "where": {}}]
    expect = [{"stage": "gap: a → c", "cause": "network_hop"}]
    assert next(sheet(expect, [], late).sheets()).always_bad() == []
    assert next(sheet(expect, [], [late[0] | {"start": at(0)}]).sheets()).always_bad() == [
        ("gap: a → c", "network_hop")
    ]


def test_hidden_tokens_are_marked_apart() -> None:
    seen = sheet([{"stage": "a", "cause": "retry"}], [Said("a", "retry")])
    marks = report([replace(seen, hidden=(Said("b", "retry"),))])
    assert (marks["precision"], marks["tokens_hidden"]["precision"], marks["tokens_hidden"]["recall"]) == (
        1.0,
        0.0,
        0.0,
    )
    assert not marks["passed"]


def test_a_result_survives_its_file() -> None:
    seen = replace(sheet([{"stage": "a", "cause": "retry"}], [Said("a", "retry", "region=eu")]), hidden=())
    again = Result.from_json(json.loads(json.dumps(seen.to_json())))
    assert report([again]) == report([seen])


def test_made_up_worlds_are_scenarios_and_stay_the_same(tmp_path: Path) -> None:
    paths = write_worlds(tmp_path, range(1, 41))
    scenarios = [read(path) for path in paths]
    assert [path.read_text() for path in write_worlds(tmp_path, range(1, 41))] == [world(n) for n in range(1, 41)]
    assert [bool(one.expects) for one in scenarios] == [number % 4 != 0 for number in range(1, 41)]
    assert {len(one.faults) for one in scenarios} == {0, 1, 2, 3}
    assert len({fault.kind for one in scenarios for fault in one.faults}) >= 15


def test_other_names_are_words_of_the_same_length() -> None:
    names = other_names(5)
    assert all(len(old) == len(new) and old != new for old, new in names.items())
    assert len(set(names.values())) == len(names)
    assert other_names(6) != names


def test_a_piece_goes_on_where_the_last_one_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there is not sat again: with results for all plans nothing runs, and the marks come from the folder."""
    (tmp_path / "one.toml").write_text('title = "one"\nseconds = 60\n')
    plan = Plan(tmp_path / "one.toml", blind=1 / 3)
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{plan.key}.json").write_text(json.dumps(sheet([], [Said("a", "retry")]).to_json()))
    assert main(["--scenarios", str(tmp_path), "--out", str(out), "--json"]) == 1
    marks = json.loads(capsys.readouterr().out)
    assert (marks["sittings"], marks["to_do"], marks["false_flags_on_healthy"]) == (1, 0, 1)


@pytest.mark.slow
def test_one_sitting_through_the_whole_pipeline(tmp_path: Path) -> None:
    plan = Plan(shipped() / "prompt_bloat.toml", 5, 150.0, cache=tmp_path, rename=True)
    done = sit(plan)
    (open_sheet,) = done.sheets()
    stage = other_names(5)["tool_select"]
    assert open_sheet.expected == [(stage, "prompt_bloat")]
    assert open_sheet.causes(stage) == ["prompt_bloat"]
    assert open_sheet.false() == []
    assert replace(sit(plan), spent_s=()) == replace(done, spent_s=())
