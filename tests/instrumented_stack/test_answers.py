"""Answers that come later, answers that are kept, and the three levels of fallback, as callers and traces see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from instrumented_stack.live import LiveStack
from instrumented_stack.services import TOKEN

Live = Callable[..., list[ReadableSpan]]
AUTH = {"authorization": f"Bearer {TOKEN}"}
LATER = "[stack.hardening]\nasync_answers = true\nanswer_cache = true\n"


def test_slow_work_is_answered_later_by_asking_again_or_by_a_push(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        base = stack.wire.urls["gateway"]
        first = await client.post(f"{base}/v1/answers", json={"number": 1}, headers=AUTH)
        assert first.status_code == 202
        assert first.json()["status"] == "processing"
        where = base + first.json()["answer"]
        assert (await client.get(where)).status_code == 202
        async with client.stream("GET", where, headers={"accept": "text/event-stream"}) as pushed:
            lines = [line async for line in pushed.aiter_lines()]
        assert lines[0] == "event: answer"
        assert json.loads(lines[1].removeprefix("data: "))["trace_id"] == first.json()["trace_id"]
        done = await client.get(where)
        assert (done.status_code, done.json()["answer"]) == (200, "done: analysis")
        assert (await client.get(f"{base}/v1/answers/nowhere")).json()["error"]["code"] == "not_found"

    spans = live(scene, LATER, "analysis")
    gateway = next(span for span in spans if span.name == "POST /v1/answers")
    agent = next(span for span in spans if span.name == "invoke_agent analysis")
    assert gateway.attributes is not None
    assert gateway.attributes["http.response.status_code"] == 202
    assert [event.name for event in gateway.events] == ["answer.deferred"]
    assert (gateway.end_time or 0) < (agent.end_time or 0)


def test_later_answers_fail_as_they_would_have_at_once(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        base = stack.wire.urls["gateway"]
        raw = b'{"number": 1, "text": "half \\ud83d"}'
        first = await client.post(f"{base}/v1/answers", content=raw, headers=AUTH)
        assert first.status_code == 202
        headers = {"accept": "text/event-stream"}
        assert (await client.get(base + first.json()["answer"], headers=headers)).text.startswith("event: error")
        assert (await client.get(base + first.json()["answer"])).status_code == 500

    live(scene, LATER, "analysis")


def test_only_answers_that_were_given_are_kept(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        url = stack.wire.urls["gateway"] + "/v1/answers"
        for raw, status in ((b'{"text": "1 + \\ud83d"}', 500), (b'{"text": "1 + 1"}', 200)):
            for _ in range(2):
                assert (await client.post(url, content=raw, headers=AUTH)).status_code == status

    spans = live(scene, LATER)
    roots = [span for span in spans if span.name == "POST /v1/answers"]
    assert ["agent.answer_cache" in (span.attributes or {}) for span in roots] == [False, False, False, True]


FALLBACK = """
seconds = 60
seed = 5
[traffic]
rps = 2.5
tasks = {{ question = 1 }}
[stack.hardening]
fallback_levels = true
[[fault]]
kind = "{kind}"
stage = "{stage}"
strength = 1.5
"""
LEVELS = [("kv_overflow", "llm_generate", 1), ("degraded_mode", "aggregate", 2), ("resource_exhausted", "aggregate", 3)]


@pytest.mark.parametrize(("kind", "stage", "level"), LEVELS, ids=[item[0] for item in LEVELS])
def test_fallback_has_three_levels(play: Callable[..., Any], kind: str, stage: str, level: int) -> None:
    ran = play(FALLBACK.format(kind=kind, stage=stage))
    fallen = [run for run in ran.of(stage) if any(name == "fallback" for name, _ in run.events)]
    assert len(fallen) > 5
    assert {run.attributes["stagescope.fallback"] for run in fallen} == {level}
    assert all(run.failed == (level == 3) for run in fallen)
    if level == 3:
        assert all(run.message.startswith("answered from cache: ") for run in fallen)
        assert {run.attributes["error.type"] for run in fallen} == {"ServiceDegradedError"}


def test_the_state_lock_gives_up_after_three_seconds(play: Callable[..., Any]) -> None:
    def waits(on: bool) -> tuple[set[str], float]:
        text = FALLBACK.format(kind="state_deadlock", stage="aggregate")
        ran = play(text.replace("fallback_levels = true", f"state_lock = {str(on).lower()}"))
        held = [run for run in ran.of("aggregate") if "stagescope.lock_holders" in run.attributes]
        errors = {run.attributes.get("error.type", "") for run in held}
        return errors, max(run.attributes["stagescope.lock_wait_ms"] for run in held)

    assert waits(True) == ({"StateConflictError"}, pytest.approx(3_000, abs=1))
    assert waits(False) == ({""}, pytest.approx(6_000, abs=1))
