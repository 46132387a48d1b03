"""Every scenario that comes with the package runs; the same seed gives the same bytes, whatever the scenario holds; other people's files run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from instrumented_stack.read import read
from instrumented_stack.stack import Overrides, run

SHIPPED = sorted((Path(__file__).parents[2] / "instrumented_stack" / "scenarios").glob("*.toml"))
START = "2026-11-23T00:00:00.000Z"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_runs(path: Path, play: Callable[..., Any]) -> None:
    ran = play(path.read_text(encoding="utf-8"), seconds=30.0, rps=1.5)
    asked = ran.outcome.requests
    assert 20 < asked < 80
    assert ran.outcome.failed <= 0.6 * asked
    assert len(ran.spans) == ran.outcome.spans >= 3 * asked
    assert {item["cause"] for item in ran.outcome.truth["faults"]} == {fault.kind for fault in read(path).faults}
    stages = {span.attributes["stagescope.stage"] for span in ran.spans if "stagescope.stage" in span.attributes}
    assert {"intent_parse", "tool_select", "data_fetch", "llm_generate"} <= stages
    assert any(name == "DCGM_FI_PROF_SM_ACTIVE" for name, *_ in ran.points)


# Everything at once that has randomness of its own, with three faults that overlap.
STORM = """
title = "Three at once"
seconds = "50s"
seed = 20260
[traffic]
arrivals = "rush.csv"
speedup = 1.5
tasks = { question = 5, document = 2, reflection = 1, mail_draft = 2 }
regions = { mars = 1, venus = 3 }
devices = ["tablet"]
tiers = { trial = 9, paid = 1 }
versions = { "2026.1" = 1 }
poll_s = 0.1
slow_tools = { search = 1.5 }
[stack]
batch = "static"
retries = 2
tool_timeout_s = 6
lock_timeout_s = 1.5
sampling = 0.8
host_spread = 0.2
hosts = { middle = 3 }
[stack.engine.core]
gpu = "NVIDIA H100"
model = "Llama-3-8B"
prefix_caching = true
[stack.hardening]
tool_breakers = true
state_lock = true
fallback_levels = true
[[rollout]]
version = "2026.2"
start = "50%"
share = 0.4
[[fault]]
kind = "tool_timeout"
stage = "data_fetch"
start = "10%"
end = "70%"
strength = 1.7
where = { region = "venus", tool = ["search", "mail"] }
[[fault]]
kind = "lock_wait"
stage = "aggregate"
start = 12.5
end = "45s"
strength = 0.4
[[fault]]
kind = "state_deadlock"
stage = "outline"
start = "20s"
strength = 2.5
where = { version = ["2026.1", "2026.2"] }
"""


@pytest.fixture
def storm(tmp_path: Path) -> Path:
    """A folder of somebody else's: a scenario and the arrivals that it names."""
    rows = [f"2026-03-01 10:00:{at * 0.55:09.6f},{200 + at},{20 + at % 7}" for at in range(100)]
    (tmp_path / "rush.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    (tmp_path / "storm.toml").write_text(STORM)
    return tmp_path / "storm.toml"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_somebody_elses_three_overlapping_faults_run_and_leave_their_truth(storm: Path, tmp_path: Path) -> None:
    start = read(storm)
    outcome = run(storm, str(tmp_path / "out"), Overrides(start=_instant()))
    assert outcome.requests > 80
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert [(item["cause"], item["start"][17:], item["end"][17:]) for item in truth["faults"]] == [
        ("tool_timeout", "05.000Z", "35.000Z"),
        ("lock_wait", "12.500Z", "45.000Z"),
        ("state_deadlock", "20.000Z", "50.000Z"),
    ]
    assert truth["faults"][0]["where"] == {"region": "venus", "tool": ["search", "mail"]}
    assert (truth["start"], truth["seed"], truth["expect"]) == (START, start.seed, [])
    said = _messages(tmp_path / "out")
    assert any("Tool execution exceeded 6s" in text for text in said)
    assert any("is held by another writer for over 1.5 s" in text for text in said)


def test_the_same_seed_gives_the_same_bytes_in_every_file(storm: Path, tmp_path: Path) -> None:
    for name, seed in (("first", 5), ("again", 5), ("other", 6)):
        run(storm, str(tmp_path / name), Overrides(start=_instant(), seed=seed))
    first, again, other = (files(tmp_path / name) for name in ("first", "again", "other"))
    assert first == again
    assert {"traces-00001.pb", "metrics-00001.pb", "truth.json"} <= set(first)
    assert first["traces-00001.pb"] != other["traces-00001.pb"]


def _instant() -> Any:
    from instrumented_stack.__main__ import instant

    return instant(START)


def _messages(folder: Path) -> set[str]:
    return {
        span.status.message
        for path in folder.glob("traces-*.pb")
        for resource in ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans
        for span in resource.scope_spans[0].spans
    }
