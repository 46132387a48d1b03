"""What work justifies: rates come back as put in, a bad stage cannot define its own normal, and too little knowledge says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analytics import slow
from analytics.expectation import Expectation, learn
from analytics.expectation_fit import rates, weighted_quantile
from analytics.expectation_needs import Needs, needs
from analytics.slow_stage import Stage, stages
from ingest.errors import BadSetting
from tests.analytics.stage_world import STAGES, World


def learnt(world: World) -> dict[str, tuple[Stage, Expectation]]:
    found = stages(world.data())
    return {stage.name: (stage, expected) for stage, expected in zip(found, learn(found, needs()), strict=True)}


def table(n: int = 4_000, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    work = np.column_stack([np.ones(n), rng.lognormal(6, 0.6, n), rng.lognormal(3, 0.8, n)])
    return work, work @ np.array([20.0, 0.15, 9.0]), rng


def test_rates_come_back_as_put_in() -> None:
    work, mean, rng = table()
    noise = np.exp(rng.normal(0, 0.1, len(mean)))
    found = rates(work, mean * noise / np.quantile(noise, 0.25), np.ones(len(mean)))
    assert found[1:] == pytest.approx([0.15, 9.0], rel=0.05)


def test_outliers_do_not_move_the_lower_quartile() -> None:
    work, mean, rng = table(seed=2)
    spoilt = mean * np.where(rng.random(len(mean)) < 0.2, 20.0, 1.0)
    assert rates(work, spoilt, np.ones(len(mean)))[1:] == pytest.approx([0.15, 9.0], rel=0.1)


def test_more_work_never_costs_less() -> None:
    rng = np.random.default_rng(3)
    work = np.column_stack([np.ones(500), rng.uniform(1, 100, 500), rng.uniform(1, 100, 500)])
    assert (rates(work, 500.0 - 2.0 * work[:, 1] + rng.uniform(0, 5, 500), np.ones(500)) >= 0).all()


def test_order_of_rows_does_not_matter() -> None:
    work, mean, rng = table(500, 4)
    order = rng.permutation(500)
    weight = rng.uniform(0.5, 2, 500)
    assert rates(work[order], mean[order], weight[order]) == pytest.approx(rates(work, mean, weight), rel=1e-6)


def test_weighted_quantile() -> None:
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5) == 2.0


@pytest.mark.parametrize("times", [1.0, 2.5, 6.0])
def test_a_bad_stage_cannot_define_its_own_normal(times: float) -> None:
    world = World(seed=31)
    before = float(np.median(world.runs.loc[world.of("merge"), "service_ms"]))
    world.slow(world.of("merge"), times)
    stage, expected = learnt(world)["merge"]
    assert expected.source == "peers"
    assert "middle/merge" not in expected.peers
    assert float(np.median(expected.justified_ms)) == pytest.approx(before, rel=0.15)
    assert expected.bad == (times > 1.6)
    assert stage.known_share == 1.0


def test_a_bad_stage_does_not_excuse_its_peers() -> None:
    world = World(seed=32)
    world.slow(world.of("verify"), 5.0)
    found = learnt(world)
    assert [name for name, (_, expected) in found.items() if expected.bad] == ["verify"]
    assert "middle/verify" not in found["merge"][1].peers


def test_where_no_peer_is_left_the_reference_says_so() -> None:
    found = learnt(World(seed=33))
    assert found["answer"][1].source == "tier"
    assert found["lookup"][1].source == "self"
    assert found["gap: a → b"][1].source == "peers"


def test_card_and_model_give_a_roofline() -> None:
    world = World(seed=34)
    world.gpu = (
        world.runs[["host"]]
        .drop_duplicates()
        .assign(ts=0.0, gpu="0", gpu_model="NVIDIA A10", sm=0.4, dram=0.5, gpu_mem=0.5, pcie=0.1)
    )
    world.runs["ev_gpu"] = 0.0
    assert learnt(world)["answer"][1].source == "roofline"


def test_without_tokens_a_stage_is_its_own_reference() -> None:
    world = World(seed=35)
    world.runs.loc[world.of("merge"), ["input_tokens", "output_tokens"]] = np.nan
    stage, expected = learnt(world)["merge"]
    assert expected.source == "self"
    assert not expected.bad
    assert stage.known_share == 0.0


def test_each_tool_has_its_own_pace() -> None:
    world = World(seed=36, stages=[item for item in STAGES if item.kind == "fetch"])
    world.runs["stage"], world.runs["service"] = "call", "tools"
    world.runs["trace"] += world.runs["tool"]
    _, expected = learnt(world)["call"]
    assert set(expected.by_tool) == {"search", "run_code"}
    assert expected.by_tool["run_code"][0] > 3 * expected.by_tool["search"][0]


def test_budgets_come_from_a_file_that_may_be_edited(tmp_path: Path) -> None:
    assert needs().budget_ms["render"] > 0
    path = tmp_path / "stages.toml"
    path.write_text("[budget]\nrender = 9\n[need]\nprompt_tokens = 100\n")
    assert needs(str(path)) == Needs({"render": 9.0}, 100.0)


@pytest.mark.parametrize("text", ["[budget\n", "[budget]\nrender = 'soon'\n"])
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(text)
    with pytest.raises(BadSetting):
        needs(str(path))
    with pytest.raises(BadSetting):
        needs(str(tmp_path / "gone.toml"))


def test_a_purpose_over_its_budget_is_bad_without_any_model() -> None:
    world = World(seed=37)
    world.runs.loc[world.of("verify"), ["model", "tier"]] = ""
    world.runs.loc[world.of("verify"), ["input_tokens", "output_tokens"]] = np.nan
    world.runs.loc[world.of("verify"), "service_ms"] = 900.0
    _, expected = learnt(world)["verify"]
    assert (expected.source, expected.bad) == ("budget", True)
    assert float(np.median(expected.usual_ms)) == needs().budget_ms["check"]


def test_rare_tools_do_not_borrow_the_pace_of_others() -> None:
    """Forty calls of a slow tool beside many of a quick one are no slowness of the stage."""
    world = World(seed=38, traces=600, stages=[item for item in STAGES if item.kind == "fetch"])
    world.runs = world.runs[(world.runs["tool"] == "search") | (world.runs.index % 15 == 0)].copy()
    world.runs["stage"], world.runs["service"] = "call", "tools"
    stage, expected = learnt(world)["call"]
    rare = stage.tools == "run_code"
    assert 8 <= rare.sum() < 60
    assert abs(float(np.median(np.log(stage.service_ms / expected.usual_ms)[rare]))) < 0.5
    assert list(slow.find(world.data())) == []
