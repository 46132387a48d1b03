"""Arrivals, hardening and propagation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from instrumented_stack.errors import ScenarioError, StateConflictError
from instrumented_stack.gateway import TokenBucket
from instrumented_stack.hardening import AnswerCache, Breaker, Sessions, clean
from instrumented_stack.propagation import extract, inject
from instrumented_stack.scenario import Scenario, Traffic
from instrumented_stack.stack import run
from instrumented_stack.telemetry import SERVER, Link, Place
from instrumented_stack.telemetry_sdk import SdkTracing
from instrumented_stack.traffic import arrivals, peak_rps, rate


def test_poisson_arrivals_have_the_rate_and_the_steps() -> None:
    scenario = Scenario("s", seconds=2_000, traffic=Traffic(rps=2, steps=((1_000, 8),), bursts=((1_500, 1_600, 20),)))
    times = [item.at_s for item in arrivals(scenario, 0)]
    assert times == sorted(times)
    counts = [
        sum(low <= at < high for at in times)
        for low, high in ((0, 1_000), (1_000, 1_500), (1_500, 1_600), (1_600, 2_000))
    ]
    for count, mean in zip(counts, (2_000, 4_000, 2_800, 3_200), strict=True):
        assert abs(count - mean) < 5 * mean**0.5


def test_the_shapes_of_day_and_week_keep_below_their_peak() -> None:
    for shape in ("steady", "day", "week"):
        traffic = Traffic(rps=3, shape=shape)
        week = [rate(traffic, hour * 3_600.0, 0) for hour in range(168)]
        assert max(week) <= peak_rps(traffic) + 1e-9
        assert sum(week) / 168 == pytest.approx(3, rel=0.01)


def test_arrivals_from_files(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,110,27\n"
    )
    mooncake = tmp_path / "mooncake.jsonl"
    mooncake.write_text(
        '{"timestamp": 3000, "input_length": 7, "output_length": 5, "hash_ids": [0]}\n{"timestamp": 0, "input_length": 9, "output_length": 4}\n'
    )
    got = [list(arrivals(Scenario("s", traffic=Traffic(arrivals=path, speedup=2)), 0)) for path in (azure, mooncake)]
    assert [(round(item.at_s, 6), item.input_tokens, item.output_tokens) for item in got[0]] == [
        (0, 4808, 10),
        (1, 110, 27),
    ]
    assert [(item.at_s, item.input_tokens, item.output_tokens) for item in got[1]] == [(0, 9, 4), (1.5, 7, 5)]
    for name, text in (
        ("a.csv", "x,y\n1,2\n"),
        ("b.jsonl", "{}\n"),
        ("c.jsonl", "hello"),
        ("d.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ScenarioError, match=name):
            list(arrivals(Scenario("s", traffic=Traffic(arrivals=tmp_path / name)), 0))


def test_recorded_arrivals_drive_a_run(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "arrivals"
    if not folder.is_dir():
        pytest.skip("no recorded arrivals beside the repository")
    text = f'seconds = 20\n[traffic]\narrivals = "{folder / "AzureLLMInferenceTrace_conv.csv"}"\n'
    (tmp_path / "s.toml").write_text(text)
    assert run(tmp_path / "s.toml", str(tmp_path / "out.jsonl")).requests > 10
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    first = next(line for line in lines if "resourceSpans" in line)
    span = first["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert len(span["traceId"]) == 32
    assert int(span["traceId"], 16)
    assert json.loads((tmp_path / "out.truth.json").read_text())["faults"] == []


HARD = """
seconds = 25
[traffic]
rps = 3
tasks = { question = 0.5, document = 0.3, calculation = 0.2 }
[stack]
tool_timeout_s = 8
[stack.hardening]
"""
TIMEOUT = '[[fault]]\nkind = "tool_timeout"\nstage = "data_fetch"\nstrength = 3\n'
OVERFLOW = '[[fault]]\nkind = "kv_overflow"\nstage = "llm_generate"\nstrength = 3\n'
# (switch, fault, event or attribute that shows it acting)
SWITCHES = [
    ("tool_breakers", TIMEOUT, "breaker.opened"),
    ("tiered_timeouts", TIMEOUT, "stagescope.timeout_s"),
    ("dynamic_context", OVERFLOW, "context.truncated"),
    ("kv_quota", OVERFLOW, "kv_quota.refused"),
    ("memory_watermark", '[[fault]]\nkind = "kv_cache_pressure"\nstage = "llm_generate"\n', "memory.watermark"),
    (
        "unicode_cleaning",
        '[[fault]]\nkind = "serialisation_crash"\nstage = "aggregate"\nstrength = 3\n',
        "text.cleaned",
    ),
    ("resident_fallback", '[[fault]]\nkind = "fallback_path"\nstage = "aggregate"\n', "stagescope.fallback.resident"),
    ("payload_alert", '[[fault]]\nkind = "payload"\nstage = "data_fetch"\n', "payload.over_limit"),
    ("fallback_levels", '[[fault]]\nkind = "degraded_mode"\nstage = "aggregate"\nstrength = 3\n', "fallback"),
    ("health_check", '[[fault]]\nkind = "cold_start"\nstage = "aggregate"\n', "health_check.passed"),
    ("async_answers", "", "answer.deferred"),
    ("answer_cache", "", "agent.answer_cache"),
    ("schema_version", "", "agent.schema_version"),
    ("fault_drill", "", "fault_drill.delayed"),
]


@pytest.mark.parametrize(("switch", "fault", "sign"), SWITCHES, ids=[item[0] for item in SWITCHES])
def test_each_hardening_measure_shows_itself_when_on_and_only_then(
    play: Callable[..., Any], switch: str, fault: str, sign: str
) -> None:
    def signs(on: bool) -> int:
        text = HARD + f"{switch} = {str(on).lower()}\n" + fault
        ran = play(text.replace("{ question", "{ conversion = 0.01, question"))
        return sum(sign in span.attributes or sign in [name for name, _ in span.events] for span in ran.spans)

    assert signs(True) > 0
    assert signs(False) == 0


def test_context_that_is_not_propagated_falls_apart(play: Callable[..., Any]) -> None:
    whole, torn = (play(HARD.replace("25", "10") + f"trace_context = {value}\n") for value in ("true", "false"))
    assert len({span.trace for span in whole.spans}) == whole.outcome.requests
    assert len({span.trace for span in torn.spans}) > 4 * torn.outcome.requests


@given(st.text(max_size=60))
def test_clean_text_can_be_encoded_and_is_clean(text: str) -> None:
    once = clean(text + "\ud83d\x00")
    once.encode("utf-8")
    assert "\x00" not in once
    assert clean(once) == once


def test_sessions_keep_versions_and_bound_the_wait() -> None:
    async def main() -> None:
        sessions = Sessions(timeout_s=0.05)
        assert await sessions.write("a", "planning") == 1
        with pytest.raises(StateConflictError, match="version 1, the write expected 0"):
            await sessions.write("a", "done", expected_version=0)
        with pytest.raises(StateConflictError, match="cannot go"):
            await sessions.write("a", "sideways")
        results = await asyncio.gather(
            sessions.write("a", "acting", hold_s=0.2),
            *(sessions.write("a", "done") for _ in range(20)),
            return_exceptions=True,
        )
        assert [type(item) for item in results[1:]] == [StateConflictError] * 20
        assert sessions.get("a").version == 2

    asyncio.run(main())


def test_breaker_bucket_and_cache() -> None:
    breaker = Breaker()
    assert [breaker.note(at, 0.1, True) for at in (1, 2, 3)] == [False, False, True]
    assert (breaker.allows(10), breaker.allows(33.1)) == (False, True)
    slow = Breaker()
    assert any(slow.note(at, 2.0, False) for at in range(20))
    bucket = TokenBucket(2, 3)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert (bucket.take(0.4), bucket.take(0.5), bucket.take(0.6)) == (False, True, False)
    cache = AnswerCache(limit=2)
    assert not cache.hit("t", "a", 0)
    cache.keep("t", "a", 0)
    assert [cache.hit("t", "a", 299), cache.hit("t", "b", 299), cache.hit("t", "a", 301)] == [True, False, False]
    for at in range(10):
        cache.keep("t", str(at), 302)
    assert sum(cache.hit("t", str(at), 303) for at in range(10)) == 2


LINKS = st.builds(
    Link,
    st.binary(min_size=16, max_size=16).filter(any),
    st.binary(min_size=8, max_size=8).filter(any),
    st.dictionaries(st.sampled_from(["user.id", "cloud.region"]), st.text(st.characters(codec="utf-8"), max_size=20)),
    st.booleans(),
)


@given(LINKS)
def test_context_survives_either_way(link: Link) -> None:
    headers = inject(link)
    assert extract(headers) == link
    assert extract({"b3": headers["b3"], "baggage": headers["baggage"]}) == link


@pytest.mark.parametrize(
    "headers",
    [{}, {"traceparent": "00-" + "0" * 32 + "-" + "1" * 16 + "-01"}, {"traceparent": "x"}, {"b3": "1-2"}, {"b3": "0"}],
)
def test_nonsense_is_no_context(headers: dict[str, str]) -> None:
    assert extract(headers) is None


def test_sampling_keeps_whole_traces(play: Callable[..., Any]) -> None:
    text = HARD.replace("[stack.hardening]", "").replace("seconds = 25", "seconds = 60")
    every, some, none = (play(text + f"sampling = {share}\n") for share in (1.0, 0.3, 0.0))
    assert none.spans == []
    kept, asked = {span.trace for span in some.spans}, every.outcome.requests
    assert abs(len(kept) - 0.3 * asked) < 4 * (0.21 * asked) ** 0.5
    sizes = dict.fromkeys(kept, 0)
    for span in every.spans:
        if span.trace in sizes:
            sizes[span.trace] += 1
    assert len(some.spans) == sum(sizes.values())


@pytest.mark.parametrize(
    "headers", [{"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}, {"b3": f"{'a' * 32}-{'b' * 16}-0"}]
)
def test_what_the_caller_does_not_sample_stays_unsampled(headers: dict[str, str]) -> None:
    link = extract(headers)
    assert link is not None
    assert not link.sampled
    memory = InMemorySpanExporter()
    tracing = SdkTracing(SimpleSpanProcessor(memory))
    tracing.start(Place("s", "h", "1"), "quiet", SERVER, link).end()
    tracing.start(Place("s", "h", "1"), "heard", SERVER, replace(link, sampled=True)).end()
    assert [span.name for span in memory.get_finished_spans()] == ["heard"]


def test_the_trace_state_of_b3_in_several_headers() -> None:
    ids = {"x-b3-traceid": "a" * 16, "x-b3-spanid": "b" * 16}
    assert extract({**ids, "x-b3-sampled": "0"}) == Link(bytes(8) + b"\xaa" * 8, b"\xbb" * 8, {}, False)
    assert extract(ids) == Link(bytes(8) + b"\xaa" * 8, b"\xbb" * 8, {}, True)
