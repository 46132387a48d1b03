"""Against a real vLLM server: streaming, the choice of a tool, its cache, its page, its spans in our trace, and input that is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from ingest import scrape
from ingest.exposition import parse
from instrumented_stack.catalogue import TOOLS_BY_NAME
from instrumented_stack.engine import Answer, Ask, EngineOptions
from instrumented_stack.engine_server import Server
from instrumented_stack.engine_vllm import VllmEngine
from instrumented_stack.errors import AgentError, BadRequest, ResourceExhausted
from instrumented_stack.hardware import GPUS, MODELS
from instrumented_stack.live import LiveStack, run_live
from instrumented_stack.read import read
from instrumented_stack.services import TOKEN
from instrumented_stack.telemetry_sdk import open_tracing
from tests.ui.running import wait_for
from ui.up import Node

OPTIONS = EngineOptions(GPUS["CPU 2 cores"], MODELS["SmolLM2-135M"], 16, 32, True, 2_048)
PAGE = (
    "num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries prefix_cache_hits num_preemptions prompt_tokens "
    "generation_tokens time_to_first_token_seconds inter_token_latency_seconds request_queue_time_seconds e2e_request_latency_seconds"
).split()


def asked(server: Server, ask: Ask) -> Answer:
    """One generation by the stack's own engine."""

    async def main() -> Answer:
        engine = VllmEngine(OPTIONS, server.plan.url, "smollm2")
        try:
            return await engine.generate(ask)
        finally:
            await engine.close()

    return asyncio.run(main())


def test_an_answer_streams_and_says_what_it_cost(server: Server) -> None:
    answer = asked(server, Ask(200, 12, "intent_parse", 96, text="what is 17 * 4"))
    assert answer.output_tokens == 12
    assert answer.text
    assert answer.input_tokens == pytest.approx(200, rel=0.15)
    assert 0 < answer.first_token_s < answer.total_s
    assert answer.queue_s is not None
    assert 0 <= answer.queue_s < answer.first_token_s


def test_only_a_tool_that_exists_is_chosen(server: Server) -> None:
    tools = tuple(TOOLS_BY_NAME)
    for text in ("what is 3 + 4", "wie sagt man Lieferschein", ""):
        assert asked(server, Ask(120, 12, "tool_select", 60, text=text, choices=tools)).text in tools


def test_a_prefix_is_read_once(server: Server) -> None:
    first, second = (asked(server, Ask(400, 2, "summarise", 320, text=text)) for text in ("alpha beta", "gamma delta"))
    assert first.cached_tokens < 32
    assert second.cached_tokens >= 256
    assert second.cached_tokens % 32 == 0
    assert second.first_token_s < first.first_token_s


def test_its_page_is_understood_and_lands_in_the_store(server: Server, up: Node) -> None:
    asked(server, Ask(60, 4, "tone", 20, text="page"))
    page = parse(*scrape.fetch(f"{server.plan.url}/metrics"))
    names = {family.name for family in page.families}
    assert {f"vllm:{name}" for name in PAGE} <= names
    assert "bad-line" not in page.dropped
    rows = "SELECT count() FROM engine_samples WHERE Model = 'smollm2' AND GenerationTokens > 0 AND KvUsage >= 0 AND Running >= 0"
    wait_for(lambda: int(up.store.value(rows)) > 0, 20, "the scraper's rows")


SCENARIO = """
seconds = 8
seed = 3
[traffic]
rps = 0.4
tasks = {{ calculation = 1 }}
input_scale = 0.1
output_scale = 0.05
[stack]
tool_select = "prompt"
tools = ["calculator", "translate"]
hosts = {{ edge = 1, middle = 1, core = 1, tools = 1 }}
[stack.hardening]
fallback_levels = {fallback}
[stack.engine.edge]
kind = "vllm"
url = "{url}"
model = "smollm2"
max_model_len = 4096
[stack.engine.middle]
kind = "vllm"
url = "{url}"
model = "smollm2"
max_model_len = 4096
[stack.engine.core]
kind = "vllm"
url = "{url}"
model = "smollm2"
max_model_len = 4096
"""


def test_its_spans_join_our_trace_and_their_time_is_the_stages(server: Server, up: Node, tmp_path: Path) -> None:
    path = tmp_path / "real.toml"
    path.write_text(SCENARIO.format(url=server.plan.url, fallback="false"))
    outcome = asyncio.run(run_live(read(path), up.otlp_http, None))
    assert outcome.requests > 0
    assert outcome.failed == 0
    joined = """
        SELECT uniqExact(p.SpanName) FROM (SELECT * FROM otel_traces WHERE SpanName = 'llm_request') AS e
        INNER JOIN (SELECT * FROM otel_traces WHERE SpanAttributes['gen_ai.provider.name'] = 'vllm') AS p
        ON e.TraceId = p.TraceId AND e.ParentSpanId = p.SpanId"""
    wait_for(
        lambda: int(up.store.value(joined)) == 4, 30, "spans of the server below each of the four stages that ask it"
    )
    know = "SELECT countIf(mapContains(Evidence, 'decode_ms')) FROM stage_runs FINAL WHERE Model = 'smollm2'"
    wait_for(
        lambda: int(up.store.value(know)) == 4 * outcome.requests, 60, "stage runs that know what the server knows"
    )
    runs = up.store.read("SELECT * FROM stage_runs FINAL WHERE Model = 'smollm2'")
    assert len(runs) == 4 * outcome.requests
    assert (runs["SelfTime"] > 0.8 * runs["Duration"]).all()
    assert runs["Evidence"].map(lambda facts: {"queue_ms", "prefill_ms", "ttft_ms"} <= set(facts)).all()
    folded = "SELECT countIf(SelfTime = 0) FROM stage_runs FINAL WHERE Stage = 'llm_request'"
    assert int(up.store.value(folded)) == len(runs)


def test_bad_input_is_refused_and_the_server_lives(server: Server) -> None:
    with pytest.raises(ResourceExhausted, match="maximum context length"):
        asked(server, Ask(3_000, 10, "outline", 100, text="x"))
    with pytest.raises(BadRequest, match="no text"):
        asked(server, Ask(60, 4, "outline", 20, text="hello \ud83d"))
    with pytest.raises(AgentError):
        asked(server, Ask(60, 0, "outline", 20, text="nothing wanted"))
    assert asked(server, Ask(60, 4, "outline", 20, text="a NUL \x00 and a bell \x07")).output_tokens == 4
    assert asked(server, Ask(60, 4, "outline", 20, text="whole \U0001f600")).output_tokens == 4
    refused = httpx.post(f"{server.plan.url}/v1/chat/completions", content=b"{", timeout=30)
    assert 400 <= refused.status_code < 500


def through_the_stack(
    text: str, up: Node, scene: Callable[[LiveStack, httpx.AsyncClient], Awaitable[None]], path: Path
) -> None:
    path.write_text(text)

    async def main() -> None:
        tracing, _ = open_tracing(up.otlp_http)
        async with LiveStack(read(path), tracing, datetime.now(UTC)) as stack, httpx.AsyncClient(timeout=120) as client:
            await scene(stack, client)
        await asyncio.to_thread(tracing.close)

    asyncio.run(main())


def test_killed_in_the_middle_of_an_answer(server: Server, up: Node, tmp_path: Path) -> None:
    """The last test here: it takes the server away. A structured error, then answers of the fallback where that is switched on."""
    said: list[AgentError] = []

    async def main() -> None:
        engine = VllmEngine(OPTIONS, server.plan.url, "smollm2")
        answer = asyncio.create_task(engine.generate(Ask(100, 800, "llm_generate", 50, text="a long one")))
        page = f"{server.plan.url}/metrics"
        while 'vllm:num_requests_running{engine="0",model_name="smollm2"} 1.0' not in await asyncio.to_thread(
            text_of, page
        ):
            assert not answer.done()
        await asyncio.to_thread(server.kill)
        try:
            await answer
        except AgentError as error:
            said.append(error)
        await engine.close()

    asyncio.run(main())
    assert [(error.code, "model server" in str(error)) for error in said] == [("agent_execution_failed", True)]

    async def fails(stack: LiveStack, client: httpx.AsyncClient) -> None:
        reply = await client.post(
            stack.wire.urls["gateway"] + "/v1/answers", json={}, headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert reply.status_code == 500
        assert json.loads(reply.text)["error"]["code"] == "agent_execution_failed"

    async def falls_back(stack: LiveStack, client: httpx.AsyncClient) -> None:
        reply = await client.post(
            stack.wire.urls["gateway"] + "/v1/answers", json={}, headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert reply.status_code == 200

    scenario = {"url": server.plan.url}
    through_the_stack(SCENARIO.format(fallback="false", **scenario), up, fails, tmp_path / "bare.toml")
    through_the_stack(SCENARIO.format(fallback="true", **scenario), up, falls_back, tmp_path / "safe.toml")
    fell = "SELECT countIf(SpanAttributes['stagescope.fallback'] = '1') FROM otel_traces"
    wait_for(lambda: int(up.store.value(fell)) >= 4, 20, "stages that say they fell back")


def text_of(url: str) -> str:
    return httpx.get(url, timeout=30).text
