"""Live services over real sockets: one trace across all tiers, structured refusals, consistent sessions, pages that scrapers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from prometheus_client.parser import text_string_to_metric_families

from instrumented_stack.live import LiveStack
from instrumented_stack.samples import Sampler
from instrumented_stack.services import TOKEN

Live = Callable[..., list[ReadableSpan]]
AUTH = {"authorization": f"Bearer {TOKEN}"}


def test_one_trace_across_all_tiers_and_below_the_caller(live: Live) -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    inbound = [
        {"traceparent": f"00-{trace}-{span}-01"},
        {"b3": f"{trace}-{span}-1"},
        {"x-b3-traceid": trace, "x-b3-spanid": span},
    ]

    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        url = stack.wire.urls["gateway"] + "/v1/answers"
        own = await client.post(url, json={"text": "what is 2 + 2"}, headers=AUTH)
        assert own.status_code == 200
        for headers in inbound:
            reply = await client.post(url, json={"text": "what is 2 + 2"}, headers={**AUTH, **headers})
            assert reply.json()["trace_id"] == trace

    spans = live(scene)
    joined = [item for item in spans if f"{item.context.trace_id:032x}" == trace]
    roots = [item for item in joined if item.parent is not None and f"{item.parent.span_id:016x}" == span]
    assert len(roots) == 3
    other = [item for item in spans if item not in joined]
    ids = {item.context.span_id for item in other}
    assert sum(item.parent is None for item in other) == 1
    assert all(item.parent is None or item.parent.span_id in ids for item in other)
    services = {str(item.resource.attributes["service.name"]) for item in other}
    assert services == {"gateway", "orchestrator", "edge-worker", "core-worker", "middle-worker", "tool-runner"}
    stages = {
        item.attributes["stagescope.stage"]
        for item in other
        if item.attributes and "stagescope.stage" in item.attributes
    }
    assert stages == {"intent_parse", "tool_select", "data_fetch", "llm_generate", "format_check"}
    assert all(item.attributes and item.attributes["user.tier"] for item in other)


BAD: list[tuple[str, bytes, dict[str, str], int]] = [
    ("no token", b"{}", {}, 401),
    ("wrong token", b"{}", {"authorization": "Bearer nobody"}, 401),
    ("not JSON", b"{", AUTH, 400),
    ("deep JSON", b"[" * 100_000, AUTH, 400),
    ("a list", b"[]", AUTH, 400),
    ("text that is a number", b'{"text": 5}', AUTH, 400),
    ("oversized text", json.dumps({"text": "x" * 40_000}).encode(), AUTH, 400),
    ("oversized body", b'{"text": "' + b"x" * 400_000 + b'"}', AUTH, 400),
    ("invalid UTF-8", b'{"text": "\xff\xfe"}', AUTH, 400),
    ("half an emoji", b'{"text": "hello \\ud83d"}', AUTH, 500),
    ("a NUL", b'{"text": "what is 1 + 1 \\u0000"}', AUTH, 200),
    ("odd numbers", b'{"number": -4, "input_tokens": 1e400, "output_tokens": true}', AUTH, 200),
    ("an odd session", json.dumps({"session": "s\x00/../" + "x" * 5_000}).encode(), AUTH, 200),
]


def test_bad_input_gets_a_structured_answer(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        url = stack.wire.urls["gateway"] + "/v1/answers"
        for name, body, headers, status in BAD:
            reply = await client.post(url, content=body, headers=headers)
            assert reply.status_code == status, (name, reply.text)
            if status != 200:
                assert set(reply.json()["error"]) == {"code", "type", "message"}, name
        after = await client.post(url, json={"text": "what is 3 + 4"}, headers=AUTH)
        assert after.status_code == 200

    spans = live(scene)
    refused = [
        item
        for item in spans
        if item.attributes and item.attributes.get("error.type") in ("BadRequest", "Unauthorised")
    ]
    assert len(refused) == 9
    crashed = [item for item in spans if item.attributes and item.attributes.get("error.type") == "UnicodeEncodeError"]
    assert len(crashed) == 1


def test_cleaning_at_the_edge_saves_half_an_emoji(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        url = stack.wire.urls["gateway"] + "/v1/answers"
        reply = await client.post(url, content=b'{"text": "hello \\ud83d\\u0000"}', headers=AUTH)
        assert reply.status_code == 200

    live(scene, "[stack.hardening]\nunicode_cleaning = true\n")


def test_a_hundred_requests_to_one_session_leave_it_consistent(live: Live) -> None:
    statuses: list[int] = []

    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        url = stack.wire.urls["gateway"] + "/v1/answers"
        body = {"text": "what is 2 + 2", "session": "one", "output_tokens": 2}
        replies = await asyncio.gather(*(client.post(url, json=body, headers=AUTH) for _ in range(100)))
        statuses.extend(reply.status_code for reply in replies)
        state = (await client.get(stack.wire.urls["gateway"] + "/v1/sessions/one")).json()
        good = statuses.count(200)
        assert 2 * good <= state["version"] <= good + 100
        assert state["step"] == "done"

    live(scene)
    assert len(statuses) == 100
    assert set(statuses) <= {200, 409, 429}
    assert statuses.count(200) >= 90


def packed(text: str = "what is 2 + 2", session: str = "one", **changed: Any) -> dict[str, Any]:
    """A request as the gateway hands it to the orchestrator."""
    dims = {"task": "calculation", "region": "eu-west", "device": "ios", "user_tier": "pro", "version": "1.4.0"}
    body = {"number": 7, "text": text, "input_scale": 1.0, "output_scale": 1.0, "output_tokens": 2, "history_tokens": 0}
    where = {"dims": {**dims, "user": "user-1", "session": session}, "state": {}}
    return {**body, **where, "host": "orchestrator-1", "step": ["", ""], **changed}


INNER_BAD: list[tuple[str, bytes, int, str]] = [
    ("not JSON", b"{", 400, "BadRequest"),
    ("deep JSON", b"[" * 100_000, 400, "BadRequest"),
    ("a list", b"[]", 400, "BadRequest"),
    ("nothing", b"", 400, "BadRequest"),
    ("too much", b"x" * (2 << 20), 413, "BadRequest"),
    ("no such task", json.dumps(packed(dims={"task": "magic"})).encode(), 400, "BadRequest"),
    ("dims of numbers", json.dumps(packed(dims={"task": 5})).encode(), 400, "BadRequest"),
    ("no such host", json.dumps(packed(host="orchestrator-99")).encode(), 400, "BadRequest"),
    ("text that is none", json.dumps(packed(text=None)).encode(), 400, "BadRequest"),
    ("oversized text", json.dumps(packed("x" * 40_000)).encode(), 400, "BadRequest"),
    ("endless", json.dumps(packed(output_scale=float("inf"))).encode(), 400, "BadRequest"),
    ("no number", json.dumps(packed(input_scale=float("nan"))).encode(), 400, "BadRequest"),
    ("half a request", json.dumps(packed(number=1.5)).encode(), 400, "BadRequest"),
    ("tokens below nothing", json.dumps(packed(output_tokens=-1)).encode(), 400, "BadRequest"),
    ("more tokens than fit", json.dumps(packed(output_tokens=10**9)).encode(), 503, "ResourceExhausted"),
    ("half an emoji", json.dumps(packed("hello \ud83d")).encode(), 500, "SerialisationError"),
]


def test_the_orchestrator_and_the_pools_answer_nonsense_with_a_reason(live: Live) -> None:
    steps = [
        ["", ""],
        ["aggregate", ""],
        ["nowhere", ""],
        ["intent_parse", "search"],
        ["tool_select", "no tool"],
        "aggregate",
    ]

    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        run, stage = stack.wire.inner["orchestrator"] + "/run", stack.wire.inner["edge"] + "/stage"
        for name, body, status, kind in INNER_BAD:
            reply = await client.post(run, content=body)
            assert (reply.status_code, reply.json()["error"]["type"]) == (status, kind), (name, reply.text)
        for step in steps:
            reply = await client.post(stage, json=packed(host="edge-1", step=step))
            assert (reply.status_code, reply.json()["error"]["type"]) == (400, "BadRequest"), (step, reply.text)
        for text in ("a NUL \x00", "what is 3 + 4"):
            assert (await client.post(run, json=packed(text))).status_code == 200
        assert (await client.post(stage, json=packed(host="edge-1", step=["intent_parse", ""]))).status_code == 200

    live(scene)


def test_a_hundred_writers_at_the_orchestrator_leave_a_session_consistent(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        run = stack.wire.inner["orchestrator"] + "/run"
        texts = ["what is 2 + 2" if number % 5 else "half \ud83d" for number in range(100)]
        bodies = [json.dumps(packed(text, number=number)).encode() for number, text in enumerate(texts)]
        replies = await asyncio.gather(*(client.post(run, content=body) for body in bodies))
        statuses = [reply.status_code for reply in replies]
        assert (statuses.count(200), statuses.count(500)) == (80, 20)
        state = (await client.get(stack.wire.urls["gateway"] + "/v1/sessions/one")).json()
        assert state == {"step": state["step"], "version": 180}  # each wrote its plan, and its end if it came there
        assert (await client.post(run, content=bodies[1])).status_code == 200
        state = (await client.get(stack.wire.urls["gateway"] + "/v1/sessions/one")).json()
        assert state == {"step": "done", "version": 182}

    live(scene)


@pytest.mark.parametrize("away", ["orchestrator", "edge"])
def test_a_service_that_is_away_is_an_error_with_its_name(live: Live, away: str) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        url = stack.wire.urls["gateway"] + "/v1/answers"
        stack.wire.inner[away] = "http://127.0.0.1:1"
        reply = await client.post(url, json={"text": "what is 2 + 2"}, headers=AUTH)
        assert (reply.status_code, reply.json()["error"]["type"]) == (503, "ServiceDegradedError"), reply.text
        assert f"{away} is away" in reply.text
        assert not said

    live(scene)


def test_pages_and_chat_say_that_they_are_simulated(live: Live) -> None:
    async def scene(stack: LiveStack, client: httpx.AsyncClient) -> None:
        await client.post(stack.wire.urls["gateway"] + "/v1/answers", json={"text": "what is 2 + 2"}, headers=AUTH)
        stack.exporters.samples = list(Sampler(stack.world, stack.world.rng("test")).read(stack.world.now_s()))
        page = (await client.get(stack.wire.urls["exporters"] + "/metrics")).text
        assert "imulated" in page.splitlines()[0]
        families = {family.name: family for family in text_string_to_metric_families(page)}
        sample = families["DCGM_FI_PROF_SM_ACTIVE"].samples[0]
        assert 0 <= sample.value <= 1
        assert {"gpu", "UUID", "device", "modelName", "Hostname"} <= set(sample.labels)
        vllm = (await client.get(stack.wire.urls["exporters"] + "/vllm/metrics")).text
        assert "vllm:kv_cache_usage_perc{" in vllm
        await _chat(client, stack.wire.urls["core"] + "/v1/chat/completions")

    live(scene)


async def _chat(client: httpx.AsyncClient, url: str) -> None:
    body: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 12}
    whole = (await client.post(url, json=body)).json()
    assert whole["system_fingerprint"] == "simulated"
    assert whole["usage"]["completion_tokens"] == 12
    text = ""
    async with client.stream("POST", url, json={**body, "stream": True}) as reply:
        assert reply.headers["x-simulated"] == "true"
        lines = [line async for line in reply.aiter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
    assert len(text.split()) == 12
    chosen = (await client.post(url, json={**body, "structured_outputs": {"choice": ["search", "mail"]}})).json()
    assert chosen["choices"][0]["message"]["content"] in ("search", "mail")
    for bad in ({}, {"messages": []}, {"messages": "x"}, {**body, "max_tokens": -1}, {**body, "max_tokens": 10**9}):
        refused = await client.post(url, json=bad)
        assert refused.status_code in (400, 503)
        assert refused.json()["error"]["message"]


@pytest.mark.parametrize("target", ["/nowhere", "folder", "x.jsonl"])
def test_live_needs_an_address(tmp_path: Path, target: str) -> None:
    from instrumented_stack.errors import ScenarioError
    from instrumented_stack.stack import run

    (tmp_path / "s.toml").write_text("seconds = 60")
    with pytest.raises(ScenarioError, match="http://"):
        run(tmp_path / "s.toml", target, speed="live")
