"""Each cause with the evidence it needs, decoys that must stay unnamed, and input that nobody should send."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from analytics import slow
from analytics.evidence_words import plain
from analytics.findings import CAUSES, EFFORTS, SEVERITIES, Finding
from analytics.slow_load import Data
from analytics.slow_wording import WORDS
from tests.analytics.stage_faults import FAULTS, apply, samples
from tests.analytics.stage_world import START, World

CASES = {
    "prompt_bloat": ("route", (0.0, 1.0), 1.0, {}),
    "oversized_model": ("tone", (0.0, 1.0), 1.0, {}),
    "redundant_step": ("verify", (0.0, 1.0), 1.0, {}),
    "retry": ("merge", (0.3, 0.8), 1.0, {}),
    "queueing": ("answer", (0.2, 0.7), 1.0, {}),
    "batch_stall": ("outline", (0.0, 1.0), 1.0, {}),
    "cpu_blocking": ("intent", (0.3, 0.9), 1.0, {}),
    "payload": ("merge", (0.0, 1.0), 1.0, {}),
    "fallback_path": ("merge", (0.3, 0.6), 1.0, {}),
    "cold_start": ("verify", (0.2, 1.0), 1.0, {}),
    "kv_cache_pressure": ("answer", (0.0, 1.0), 1.0, {}),
    "gpu_contention": ("outline", (0.3, 0.7), 1.0, {}),
    "pcie_saturation": ("merge", (0.0, 1.0), 1.0, {}),
    "storage_wait": ("lookup", (0.3, 0.7), 1.0, {}),
    "network_hop": ("gap: a → b", (0.0, 1.0), 1.2, {}),
    "slow_dependency": ("lookup", (0.4, 0.7), 1.0, {}),
    "lock_wait": ("merge", (0.1, 0.6), 1.0, {}),
    "context_init": ("intent", (0.0, 1.0), 1.0, {}),
    "dimension_specific": ("answer", (0.0, 1.0), 1.0, {"device": "ios"}),
    "regression": ("outline", (0.0, 1.0), 1.2, {"version": "2.0.0"}),
    "unknown": ("answer", (0.4, 0.8), 1.2, {}),
}


@cache
def _made(seed: int, traces: int) -> World:
    return World(seed=seed, traces=traces)


def fresh(seed: int, traces: int = 1_500) -> World:
    """A world of one's own to put faults in; those of one seed are made once and copied."""
    return deepcopy(_made(seed, traces))


def found_in(world: World) -> list[Finding]:
    return list(slow.find(world.data()))


@pytest.mark.parametrize("cause", sorted(FAULTS))
def test_each_cause_is_found_by_its_evidence(cause: str) -> None:
    stage, span, strength, where = CASES[cause]
    world = fresh(21)
    if cause == "regression":
        newer = world.between(0.4, 1.0) & (world.runs["trace"].str[-1].isin(list("02468ace")))
        world.runs.loc[newer, "version"] = "2.0.0"
    apply(world, cause, stage, span, strength, **where)
    found = found_in(world)
    assert [(f.subject["stage"], f.cause) for f in found] == [(stage, cause)]
    (finding,) = found
    assert finding.severity in SEVERITIES
    assert finding.effort in EFFORTS
    assert finding.lost_low > 0
    assert not [item.name for item in finding.evidence if "_" in plain(item.name)], "reads as words"
    assert all(f"{key}={value}" == finding.subject["dimension"] for key, value in where.items())


@pytest.mark.parametrize("seed", range(40, 46))
def test_healthy_worlds_are_left_alone(seed: int) -> None:
    world = World(seed=seed)
    world.runs.loc[world.between(0.5, 1.0), "version"] = "1.1.0"
    world.runs.loc[world.of("answer"), "output_tokens"] *= 3
    world.runs.loc[world.of("answer"), "service_ms"] += (
        20.0 * world.runs.loc[world.of("answer"), "output_tokens"] * 2 / 3
    )
    assert found_in(world) == []


def test_the_slowest_stage_is_not_named_but_the_bloated_small_one_is() -> None:
    """The story of the report: 890 ms to choose one of twelve tools, 2,100 ms to write the answer."""
    world = World(seed=5)
    apply(world, "prompt_bloat", "route")
    world.runs.loc[world.of("route"), "items"] = 12.0
    found = found_in(world)
    assert [f.subject["stage"] for f in found] == ["route"]
    median = world.runs.groupby("stage")["service_ms"].median()
    assert median["answer"] > 3 * median["route"]
    facts = {item.name: item for item in found[0].evidence}
    assert facts["repeated_prompt_tokens_p50"].value == pytest.approx(3520, abs=5)
    assert facts["repeated_prompt_tokens_p50"].expected == 264 + 12 * 40
    assert found[0].expected_saving_ms == pytest.approx((3520 - 744) * 0.17, rel=0.2)


def test_saving_and_interval_hold_what_was_put_in() -> None:
    world = World(seed=6)
    before = world.runs.loc[world.of("answer"), "service_ms"].sum()
    apply(world, "dimension_specific", "answer", region="us")
    put_in = (world.runs.loc[world.of("answer"), "service_ms"].sum() - before) / 1e3
    (finding,) = found_in(world)
    assert finding.lost_seconds == pytest.approx(put_in, rel=0.15)
    assert finding.lost_low < put_in < finding.lost_high


def test_every_cause_has_words_without_holes() -> None:
    assert set(WORDS) == set(CAUSES)
    assert {words.effort for words in WORDS.values()} <= set(EFFORTS)


def broken(change: str) -> Data:
    data = fresh(7, 400).data()
    runs = data.runs.copy()
    if change == "no_work":
        runs[["input_tokens", "output_tokens", "cached_tokens", "payload_bytes", "items"]] = np.nan
    elif change == "zero_tokens":
        runs[["input_tokens", "output_tokens"]] = 0.0
    elif change == "negative_tokens":
        runs[["input_tokens", "output_tokens"]] = -5.0
    elif change == "mixed_units":
        one = runs["host"].str.endswith("1")
        runs.loc[one, ["input_tokens", "output_tokens"]] = (
            runs.loc[one, ["input_tokens", "output_tokens"]] / 1e3
        ).round()
        runs.loc[runs["host"].str.endswith("2"), "payload_bytes"] /= 1e3
    elif change == "one_stage_in_thousands":
        runs.loc[runs["stage"] == "answer", ["input_tokens", "output_tokens"]] /= 1e3
    elif change == "absurd_tokens":
        runs[["input_tokens", "output_tokens"]] = 1.8e19
    elif change == "all_failed":
        runs["failed"] = 1
        return replace(data, runs=runs, totals=data.totals.assign(failed=data.totals["runs"]))
    elif change == "one_request":
        return replace(data, runs=runs[runs["trace"] == runs["trace"].iloc[0]], traces=1)
    elif change == "clocks_apart":
        runs["ts"] += np.where(runs["host"].str.endswith("1"), 5 * 3600.0, 0.0)
    elif change == "many_names":
        runs["stage"] = [f"{name} {i}" for i, name in enumerate(runs["stage"])]
        totals = runs.groupby(["service", "stage"], as_index=False).agg(
            runs=("ts", "size"), failed=("failed", "sum"), critical_ms=("critical_ms", "sum")
        )
        return replace(data, runs=runs, totals=totals)
    elif change == "zero_time":
        runs[["self_ms", "critical_ms"]] = 0.0
    return replace(data, runs=runs)


@pytest.mark.parametrize(
    "change",
    (
        "no_work zero_tokens negative_tokens mixed_units one_stage_in_thousands absurd_tokens all_failed one_request "
        "clocks_apart many_names zero_time"
    ).split(),
)
def test_bad_input_gives_no_invented_findings(change: str) -> None:
    assert [f.title for f in slow.find(broken(change))] == []


def test_missing_tokens_lower_what_is_said_not_what_is_true() -> None:
    world = World(seed=9)
    apply(world, "queueing", "merge", (0.2, 0.8))
    world.runs.loc[world.of("merge") | world.of("answer") | world.of("tone"), ["input_tokens", "output_tokens"]] = (
        np.nan
    )
    assert [(f.subject["stage"], f.cause) for f in found_in(world)] == [("merge", "queueing")]


HIDDEN = ["input_tokens", "cached_tokens", "output_tokens"]


@pytest.mark.parametrize(
    ("cause", "stage"),
    [("gpu_contention", "outline"), ("pcie_saturation", "merge"), ("cold_start", "verify")],
)
def test_strong_evidence_of_the_hardware_is_heard_without_tokens(cause: str, stage: str) -> None:
    world = fresh(21)
    apply(world, cause, stage, (0.3, 0.8), 1.5)
    world.runs.loc[world.of(stage), HIDDEN] = np.nan
    assert [(f.subject["stage"], f.cause) for f in found_in(world)] == [(stage, cause)]


@pytest.mark.parametrize(
    ("cause", "stage", "where"),
    [
        ("dimension_specific", "answer", {"device": "ios"}),
        ("fallback_path", "merge", {}),
        ("kv_cache_pressure", "answer", {}),
        ("oversized_model", "tone", {}),
    ],
)
def test_slices_with_requests_of_one_size_are_compared_without_tokens(
    cause: str, stage: str, where: dict[str, str]
) -> None:
    world = fresh(21)
    apply(
        world, cause, stage, (0.3, 0.8) if cause in ("fallback_path", "kv_cache_pressure") else (0.0, 1.0), 1.2, **where
    )
    world.slow(world.of("tone"), 1.5)
    world.runs.loc[world.of(stage), HIDDEN] = np.nan
    assert [(f.subject["stage"], f.cause) for f in found_in(world)] == [(stage, cause)]


def test_bigger_requests_of_one_region_unseen_accuse_nobody() -> None:
    """Users of one region write twice as much: every stage takes longer there, and one of them counts no tokens."""
    world = fresh(21)
    longer = world.runs["region"] == "us"
    for kind in world.stages:
        if kind.model:
            rows = longer & world.of(kind.name)
            more = world.runs.loc[rows, ["input_tokens", "output_tokens"]]
            world.runs.loc[rows, "service_ms"] += (
                kind.prompt_ms * more["input_tokens"] + kind.output_ms * more["output_tokens"]
            )
            world.runs.loc[rows, ["input_tokens", "output_tokens"]] = 2 * more
    world.runs.loc[world.of("answer"), HIDDEN] = np.nan
    assert found_in(world) == []


def test_more_work_unseen_on_a_busy_card_accuses_nobody() -> None:
    """Half the window brings prompts and answers twice as long, on a card that is then at 0.8 instead of 0.5; no tokens are declared."""
    world = fresh(21)
    late = world.of("outline") & world.between(0.5, 1.0)
    world.slow(late, 2.0)
    world.runs.loc[world.of("outline"), HIDDEN] = np.nan
    samples(world, late, "sm", (0.4, 0.6), (0.7, 0.85))
    assert found_in(world) == []


def test_hidden_load_does_not_blame_the_version() -> None:
    """A roll-out that comes with more traffic, both everywhere: nothing is proven against the version where both run side by side."""
    world = World(seed=11)
    late = world.between(0.5, 1.0)
    world.runs.loc[late, "version"] = np.where(world.rng.random(int(late.sum())) < 0.5, "1.1.0", "1.0.0")
    world.slow(late & (world.runs["model"] != ""), 1.3)
    assert "regression" not in {f.cause for f in found_in(world)}


def test_totals_scale_a_sample_to_the_window() -> None:
    world = World(seed=12)
    apply(world, "queueing", "answer")
    data = world.data()
    ten = replace(data, totals=data.totals.assign(runs=data.totals["runs"] * 10), traces=data.traces * 10)
    (small,), (large,) = slow.find(data), slow.find(ten)
    assert large.lost_seconds == pytest.approx(10 * small.lost_seconds, rel=1e-6)
    assert large.requests == 10 * small.requests
    assert isinstance(data.runs, pd.DataFrame)


def test_a_little_waiting_on_a_long_stage_is_no_queue() -> None:
    """Generations of ten seconds that wait 6 % of their time share a device as they should."""
    world = World(seed=13, traces=800)
    answer = world.of("answer")
    world.runs.loc[answer, "output_tokens"] *= 4
    world.runs.loc[answer, "service_ms"] += 20.0 * world.runs.loc[answer, "output_tokens"] * 3 / 4
    world.measured(answer, "ev_queue_ms", 0.06 * float(world.runs.loc[answer, "service_ms"].mean()))
    assert found_in(world) == []


def test_the_edge_of_the_window_makes_no_queue() -> None:
    """Stretches of five minutes begin with the window: three minutes of some waiting are not one because the clock says so."""
    world = World(seed=13, traces=600, minutes=10)
    world.measured(world.of("answer") & world.between(0.0, 0.28), "ev_queue_ms", 900.0)
    world.runs["ts"] += 132.0
    assert found_in(world) == []


@pytest.mark.parametrize(("times", "causes"), [(1.35, []), (2.2, ["queueing"])])
def test_a_batch_that_slows_while_others_wait_is_no_queue_unless_it_slows_much(times: float, causes: list[str]) -> None:
    """Decoding slows with the batch: minutes in which the engine has waiting requests are slower, and that is how it should be."""
    world = fresh(21)
    ticks = np.arange(0, world.minutes * 60, 10.0) + START.timestamp()
    busy = world.of("answer") & (world.runs["ts"] // 60 % 4 == 0)
    world.slow(busy, times)
    world.engine = pd.concat(
        pd.DataFrame({"ts": ticks, "host": host, "running": 8.0, "waiting": np.where(ticks // 60 % 4 == 0, 2.0, 0.0)})
        for host in sorted(world.runs.loc[busy, "host"].unique())
    ).assign(engine_kv=np.nan)
    assert [f.cause for f in found_in(world)] == causes
