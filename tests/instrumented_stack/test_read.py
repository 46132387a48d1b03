"""Scenario files: whatever means nothing is refused before anything runs, with file, line and reason; other people's files run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instrumented_stack.__main__ import main
from instrumented_stack.errors import ScenarioError
from instrumented_stack.read import read

SHIPPED = sorted((Path(__file__).parents[2] / "instrumented_stack" / "scenarios").glob("*.toml"))

REFUSED = [
    ("title = 5", 1, "must be text"),
    ("seconds = 0", 1, "more than 0"),
    ("seconds = nan", 1, "finite"),
    ('seconds = "soon"', 1, "15m"),
    ("speed = 3", 1, "unknown key"),
    ("[traffic]\nrsp = 3", 2, "did you mean 'rps'"),
    ("[traffic]\nrps = -1", 2, "between"),
    ("[traffic]\nrps = inf", 2, "finite"),
    ("[traffic]\nrps = true", 2, "finite number"),
    ('[traffic]\narrivals = "nowhere.csv"', 2, "no such file"),
    ("[traffic]\ntasks = { weekly = 1 }", 2, "weekly"),
    ("[traffic]\nregions = { a = 0 }", 2, "add up to nothing"),
    ("[traffic]\nregions = { a = nan }", 2, "finite"),
    ("[traffic]\nsteps = [[0, 1, 2]]", 2, "list of 2"),
    ('[stack]\ntool_select = "guess"', 2, "one of vector, prompt"),
    ("[stack]\nretries = 1.5", 2, "whole"),
    ("[stack.hardening]\nkv_quota = 1", 2, "true or false"),
    ("[stack.hardening]\nkv_qota = true", 2, "did you mean 'kv_quota'"),
    ('[stack.engine.core]\ngpu = "T5"', 2, "is unknown"),
    ("[stack.engine.heart]\nmax_num_seqs = 3", 1, "heart"),
    ('[stack.engine.core]\nkind = "vllm"', 1, "needs url"),
    ('[[fault]]\nkind = "prompt_blot"\nstage = "aggregate"', 2, "did you mean 'prompt_bloat'"),
    ('[[fault]]\nstage = "aggregate"', 1, "missing"),
    ('[[fault]]\nkind = "retry"\nstage = "nowhere"', 3, "unknown"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = 700', 4, "after the run's end"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = 100\nend = 100', 5, "not after start"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = -5', 4, "between"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstrength = nan', 4, "finite"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstrength = 0', 4, "nothing"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstrenght = 1', 4, "did you mean 'strength'"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { planet = "mars" }', 4, "unknown dimension"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { region = "mars" }', 4, "no request will ever"),
    ('[[fault]]\nkind = "dimension_specific"\nstage = "aggregate"', 1, "needs where"),
    ('[[fault]]\nkind = "gpu_contention"\nstage = "data_fetch"', 3, "needs a stage that uses a GPU"),
    ('[[fault]]\nkind = "tool_timeout"\nstage = "aggregate"', 3, "calls tools"),
    ('[[fault]]\nkind = "retry"\nstage = "human_approval"', 3, "wait for a person"),
    (
        '[[fault]]\nkind = "retry"\nstage = "aggregate"\n[[fault]]\nkind = "retry"\nstage = "tone"\nend = 0',
        7,
        "not after start",
    ),
    ('[[expect]]\nstage = "aggregate"', 2, "needs stage and cause"),
    ('[[rollout]]\nstart = "9h"', 2, "over after"),
    ("fault = 3", 1, r"\[\[fault\]\]"),
    ("seconds = inf", 1, "finite"),
    ("seconds = 1e12", 1, "ten years"),
    ('seconds = "99999w"', 1, "ten years"),
    ('seconds = "-5m"', 1, "15m"),
    ("seed = -1", 1, "between"),
    ("seed = 'x'", 1, "finite number"),
    ("sample_every = 1e-9", 1, "too often"),
    ("title = 'a'\ntitle = 'b'", 2, "not valid TOML"),
    ("[traffic]\nrps = 1\n[traffic]\nrps = 2", 3, "not valid TOML"),
    ("# a\ntraffic:\n  rps: 3\n", 2, "not valid TOML"),
    ("\x00", 1, "not valid TOML"),
    ("[traffic]\nregions = {}", 2, "must be a table"),
    ('[traffic]\nversions = "1.0"', 2, "must be a table"),
    ("[traffic]\ntasks = { question = 1e308, document = 1e308 }", 2, "more than a number can hold"),
    ("[traffic]\nsteps = [[0, nan]]", 2, "finite"),
    ("[traffic]\nsteps = [[10, 1], [5, 2]]", 2, "one after another"),
    ("[traffic]\nsteps = [[9999, 1]]", 2, "after the run's end"),
    ("[traffic]\nbursts = [[9, 3, 1]]", 2, "is not after"),
    ("[traffic]\nbursts = [[9999, 10000, 1]]", 2, "after the run's end"),
    ("[traffic]\nrps = 2\nslow_tools = { hammer = 2 }", 3, "unknown key"),
    ('[traffic]\narrivals = "."', 2, "no such file"),
    ("[stack]\nretries = 1\nhosts = { edge = 1.5 }", 3, "whole"),
    ("title = 'a'\n\n[stack]\nhosts = 3", 4, "must be a table"),
    ("[stack]\nlock_timeout_s = inf", 2, "finite"),
    ("traffic = { rps = nan }", 1, "finite"),
    ("title = 'a'\ntraffic.rps = nan", 2, "finite"),
    ("[ traffic ]\nrps = nan", 2, "finite"),
    ('[[fault]]\nkind = 5\nstage = "aggregate"', 2, "unknown"),
    ('[[fault]]\nkind = "retry"\nstage = ["aggregate"]', 3, "unknown"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = nan', 4, "finite"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = "12:00"', 4, "15m"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = 2026-11-30T00:00:00Z', 4, "finite number"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstart = "110%"', 4, "after the run's end"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nend = inf', 4, "finite"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nend = -1', 4, "between"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nend = 601', 4, "after the run's end"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstrength = inf', 4, "finite"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nstrength = "big"', 4, "finite number"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nkind = "queueing"', 4, "not valid TOML"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = "eu"', 4, "dimension = value"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { region = [] }', 4, "list of values"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { host = "middle-99" }', 4, "there is no host"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { tier = "edge" }', 4, "never runs on"),
    ('[[fault]]\nkind = "retry"\nstage = "aggregate"\nwhere = { tool = "mail" }', 4, "calls no tool"),
    ('[[fault]]\nkind = "retry"\nstage = "tone"\n[fault.where]\nplanet = "mars"', 4, "unknown dimension"),
    ('[[expect]]\nstage = "nowhere"\ncause = "retry"', 2, "unknown"),
    ('[[expect]]\nstage = "aggregate"\ncause = "nonsense"', 3, "unknown"),
    ("traffic = 3", 1, "must be a table"),
]


@pytest.mark.parametrize(("text", "line", "reason"), REFUSED)
def test_what_means_nothing_is_refused_with_its_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=reason) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}:{line}: ")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.toml").write_text("[traffic\n")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("torn.toml", "bytes.toml", "nowhere.toml", "."):
        with pytest.raises(ScenarioError, match=str(tmp_path)):
            read(tmp_path / name)


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("[[fault]]\nkind = 'nope'\n")
    assert main(["run", "--scenario", str(tmp_path / "bad.toml"), "--otlp", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    for bad in (["--seconds", "nan"], ["--rps", "0"], ["--start", "yesterday"], ["--speed", "warp"]):
        with pytest.raises(SystemExit) as stopped:
            main(["run", "--scenario", "healthy", "--otlp", str(tmp_path / "out"), *bad])
        assert stopped.value.code == 2


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_read_and_say_what_to_expect(path: Path) -> None:
    scenario = read(path)
    assert scenario.seconds > 0
    assert "[[expect]]" in path.read_text() or path.stem.startswith("healthy")
    for item in scenario.expects:
        assert item.cluster or item.stage


def test_there_are_enough_scenarios_and_one_for_each_kind() -> None:
    assert len(SHIPPED) >= 22
    text = "".join(path.read_text() for path in SHIPPED)
    from instrumented_stack.scenario import KINDS

    assert not [kind for kind in KINDS if f'"{kind}"' not in text]


FOREIGN = """
title = "Somebody else's Tuesday"
seconds = "4m"
seed = 991
[traffic]
rps = 1.25
shape = "day"
tasks = { question = 3, mail_draft = 5, analysis = 2 }
regions = ["lisbon", "osaka"]
devices = { kiosk = 2, watch = 1 }
tiers = { gold = 0.5, none = 0.5 }
versions = { "9.1" = 0.7, "9.2-rc" = 0.3 }
bursts = [[30, 60, 2]]
[stack]
tool_select = "prompt"
routing = "tiered"
retries = 1
hosts = { core = 5 }
[stack.engine.core]
max_num_seqs = 4
[[fault]]
kind = "lock_wait"
stage = "data_fetch"
start = 37.5
end = "60%"
strength = 0.35
where = { tool = ["mail", "search"], region = "osaka" }
[[fault]]
kind = "kv_cache_pressure"
stage = "llm_generate"
start = "1m"
strength = 2.5
where = { device = "watch" }
[[fault]]
kind = "regression"
stage = "outline"
start = "20%"
strength = 0.8
[[expect]]
stage = "data_fetch"
cause = "lock_wait"
"""


def test_a_scenario_of_somebody_else_runs_unchanged(play: Callable[..., Any]) -> None:
    ran = play(FOREIGN)
    assert ran.outcome.requests > 100
    waited = [run for run in ran.of("data_fetch") if "stagescope.lock_wait_ms" in run.attributes]
    assert waited
    assert {(run.attributes["cloud.region"], run.attributes["gen_ai.tool.name"]) for run in waited} <= {
        ("osaka", "mail"),
        ("osaka", "search"),
    }
    assert {run.attributes["device.type"] for run in ran.spans if "stagescope.preemptions" in run.attributes} == {
        "watch"
    }
    truth = ran.outcome.truth
    assert [item["cause"] for item in truth["faults"]] == ["lock_wait", "kv_cache_pressure", "regression"]
    assert truth["faults"][0]["start"] == "2026-11-23T00:00:37.500Z"
    assert truth["faults"][0]["end"] == "2026-11-23T00:02:24.000Z"
    assert truth["expect"] == [{"stage": "data_fetch", "cause": "lock_wait"}]
