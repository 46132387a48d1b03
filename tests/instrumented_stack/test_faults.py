"""Each kind of fault changes the facts that a real system would show, only while it acts, only where it acts, and never its name."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from instrumented_stack.scenario import CAUSES, KINDS, SCENES

HEAD = """
seconds = 120
seed = 5
[traffic]
rps = 2.5
tasks = { weekly_report = 0.5, document = 0.5 }
"""
FAULT = """
[[fault]]
kind = "{kind}"
stage = "{stage}"
start = 60
strength = {strength}
"""
# Each row is one run with several faults at once, each on a stage of its own: (kind, stage).
MIXES = [
    [
        ("prompt_bloat", "aggregate"),
        ("queueing", "format_render"),
        ("cpu_blocking", "intent_parse"),
        ("payload", "data_fetch"),
    ],
    [
        ("kv_cache_pressure", "llm_generate"),
        ("lock_wait", "data_fetch"),
        ("context_init", "intent_parse"),
        ("retry", "aggregate"),
    ],
    [
        ("fallback_path", "aggregate"),
        ("batch_stall", "format_render"),
        ("gpu_contention", "summarise"),
        ("prompt_bloat", "tool_select"),
    ],
    [
        ("pcie_saturation", "summarise"),
        ("slow_dependency", "data_fetch"),
        ("unknown", "format_render"),
        ("oversized_model", "format_check"),
    ],
    [
        ("storage_wait", "data_fetch"),
        ("cold_start", "format_render"),
        ("redundant_step", "aggregate"),
        ("regression", "intent_parse"),
    ],
]
# What grows on the span, at least by how much.
FACTS = {
    "prompt_bloat": ("stagescope.prompt.repeated_tokens", 3_000),
    "queueing": ("stagescope.queue_ms", 150),
    "batch_stall": ("stagescope.batch_wait_ms", 100),
    "cpu_blocking": ("stagescope.cpu_ms", 200),
    "payload": ("stagescope.work.bytes", 3_000_000),
    "kv_cache_pressure": ("stagescope.preemptions", 1),
    "lock_wait": ("stagescope.lock_wait_ms", 100),
    "context_init": ("stagescope.context_init_ms", 100),
    "fallback_path": ("stagescope.fallback", 1),
    "retry": ("stagescope.retries", 1),
}


def _values(runs: list[Any], key: str) -> list[Any]:
    return [run.attributes[key] for run in runs if key in run.attributes]


def _median(runs: list[Any], key: str) -> float:
    found = _values(runs, key)
    return float(median(found)) if found else 0.0


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "+".join(kind for kind, _ in mix))
def test_overlapping_faults_each_leave_their_evidence(play: Callable[..., Any], mix: list[tuple[str, str]]) -> None:
    ran = play(HEAD + "".join(FAULT.format(kind=kind, stage=stage, strength=1.2) for kind, stage in mix))
    for kind, stage in mix:
        before, after = ran.of(stage, 0, 58), ran.of(stage, 61, 119)
        fact, least = FACTS.get(kind, ("", 0))
        assert not fact or _median(after, fact) - _median(before, fact) >= least, kind
        if kind not in ("redundant_step", "cold_start", "regression"):
            assert median(run.ms for run in after) > 1.1 * median(run.ms for run in before), kind
        if kind not in NAMES_THAT_ARE_ATTRIBUTES:
            assert not any(kind.encode() in body for _, body in ran.bodies), kind
        CHECKS.get(kind, lambda *_: None)(before, after)
    before, after = ran.of("outline", 0, 58), ran.of("outline", 61, 119)
    assert median(run.ms for run in after) < 1.4 * median(run.ms for run in before)


NAMES_THAT_ARE_ATTRIBUTES = {"retry", "payload", "unknown", "regression", "cold_start", "lock_wait", "context_init"}


def _on_core(_: list[Any], after: list[Any]) -> None:
    assert {(run.attributes["stagescope.tier"], run.service) for run in after} == {("core", "core-worker")}
    assert {run.attributes["gen_ai.request.model"] for run in after} == {"Llama-3-70B-AWQ"}


def _twice(_: list[Any], after: list[Any]) -> None:
    reflecting = [run for run in after if "stagescope.outcome_changed" in run.attributes]
    assert len(reflecting) > 0.8 * (len(after) - len(reflecting))
    assert sum(_values(reflecting, "stagescope.outcome_changed")) < 0.15 * len(reflecting)


def _cold(before: list[Any], after: list[Any]) -> None:
    cold = [run for run in after if run.attributes.get("stagescope.cold_start")]
    assert cold
    assert max(run.ms for run in cold) > 4_000
    assert all(run.attributes["stagescope.uptime_s"] < 46 for run in cold)
    assert not _values(before, "stagescope.cold_start")


def _new_version_only(before: list[Any], after: list[Any]) -> None:
    (old,) = set(_values(before, "service.version"))
    by_version = {
        new: [run.ms for run in after if (run.attributes["service.version"] == old) != new] for new in (True, False)
    }
    assert median(by_version[True]) > 1.3 * median(by_version[False])


CHECKS: dict[str, Callable[[list[Any], list[Any]], None]] = {
    "oversized_model": _on_core,
    "redundant_step": _twice,
    "cold_start": _cold,
    "regression": _new_version_only,
}


def test_network_hop_lies_between_client_and_server_span(play: Callable[..., Any]) -> None:
    ran = play(HEAD + FAULT.format(kind="network_hop", stage="data_fetch", strength=1))
    by_id = {span.span: span for span in ran.spans}
    early = [by_id[run.parent].ms - run.ms for run in ran.of("data_fetch", 0, 58)]
    late = [by_id[run.parent].ms - run.ms for run in ran.of("data_fetch", 61, 119)]
    assert median(late) > 60
    assert median(early) < 10
    rtt = [(when, value) for name, _, _, when, value in ran.points if name == "stagescope.host.net.rtt_ms"]
    assert max(value for when, value in rtt if when > 70) > 30 > max(value for when, value in rtt if when < 60)


def test_where_limits_a_fault(play: Callable[..., Any]) -> None:
    text = (
        HEAD
        + FAULT.format(kind="dimension_specific", stage="aggregate", strength=2)
        + 'where = { device = ["ios", "web"] }\n'
    )
    late = play(text).of("aggregate", 61, 119)
    slow = [run.ms for run in late if run.attributes["device.type"] != "android"]
    assert median(slow) > 1.5 * median(run.ms for run in late if run.attributes["device.type"] == "android")


def test_hardware_shows_what_it_suffers(play: Callable[..., Any]) -> None:
    kinds = (
        ("gpu_contention", "summarise"),
        ("pcie_saturation", "aggregate"),
        ("kv_cache_pressure", "llm_generate"),
        ("storage_wait", "data_fetch"),
    )
    ran = play(HEAD + "".join(FAULT.format(kind=kind, stage=stage, strength=1) for kind, stage in kinds))

    def of(metric: str, early: bool, **labels: str) -> float:
        found = [
            value
            for name, host, about, when, value in ran.points
            if name == metric
            and (when < 60) == early
            and when != 60
            and labels.items() <= {**about, "pool": host.rsplit("-", 1)[0]}.items()
        ]
        return median(found)

    assert of("DCGM_FI_PROF_SM_ACTIVE", True, pool="middle", gpu="0") < 0.75
    assert of("DCGM_FI_PROF_SM_ACTIVE", False, pool="middle", gpu="0") > 0.9
    assert of("DCGM_FI_PROF_SM_ACTIVE", False, pool="middle", gpu="2") < 0.75
    assert of("DCGM_FI_PROF_PCIE_RX_BYTES", False, pool="middle", gpu="1") > 0.8 * 31.5e9
    assert of("vllm:kv_cache_usage_perc", False, pool="core") > 0.92 > of("vllm:kv_cache_usage_perc", True, pool="core")
    assert (
        of("stagescope.host.disk.queue", False, pool="tools")
        > 10
        > of("stagescope.host.disk.queue", True, pool="tools")
    )


MESSAGES = {
    "kv_overflow": ("llm_generate", "ResourceExhausted", "GPU memory allocation failed"),
    "tool_timeout": ("data_fetch", "TimeoutError", "Tool execution exceeded 30s"),
    "serialisation_crash": ("aggregate", "UnicodeEncodeError", "surrogates not allowed"),
    "state_deadlock": ("aggregate", "StateConflictError", "held by another writer for over 3 s"),
    "resource_exhausted": ("aggregate", "AgentExecutionFailed", "resource_quota_exhausted"),
    "degraded_mode": ("aggregate", "ServiceDegradedError", "fallback_to_basic_mode"),
}


@pytest.mark.parametrize("kind", SCENES)
def test_failure_scene_fails_as_in_the_field(play: Callable[..., Any], kind: str) -> None:
    stage, error, text = MESSAGES[kind]
    ran = play(HEAD.replace("seconds = 120", "seconds = 75") + FAULT.format(kind=kind, stage=stage, strength=2))
    failed = [run for run in ran.of(stage) if run.failed]
    assert len(failed) >= 4
    assert ran.outcome.failed == len(failed)
    for run in failed:
        assert run.attributes["error.type"] == error
        assert text in run.message
        _name, what = next(event for event in run.events if event[0] == "exception")
        assert what["exception.type"] == error
        assert 'File "instrumented_stack/' in what["exception.stacktrace"]
    assert not any(kind.encode() in body for _, body in ran.bodies)
    parents = [span for span in ran.spans if span.failed and "stagescope.stage" not in span.attributes]
    assert len(parents) >= 3 * len(failed)
    assert all(not span.message and not span.events for span in parents)


def test_every_cause_is_a_fault() -> None:
    assert len(CAUSES) == 21
    assert len(set(KINDS)) == 27
