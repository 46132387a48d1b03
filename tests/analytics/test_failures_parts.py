"""The parts of the failure room that need no store: echoes, frames, codes, scenes, level two, tools."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics import failures_echo, scenes
from analytics.failures import wilson_low
from analytics.failures_group import Pattern, assign, similarity
from analytics.failures_impact import contribution, curl
from analytics.failures_load import outline, trend
from analytics.failures_text import error_type, frames, result_error, status_code
from analytics.templates_mask import skeleton

NOBODY: frozenset[frozenset[str]] = frozenset()


def span(name: str, parent: str, start: int, end: int, text: str | None = None, kind: str = "") -> dict[str, object]:
    failed = text is not None
    return {
        "TraceId": "t",
        "SpanId": name,
        "ParentSpanId": parent,
        "Start": start,
        "Duration": end - start,
        "Failed": int(failed),
        "ErrorType": kind,
        "ErrorMessage": text or "",
    }


def roots(*spans: dict[str, object]) -> set[str]:
    marked = failures_echo.mark(pd.DataFrame(list(spans)))
    return set(marked[(marked["Failed"] == 1) & (marked["Echo"] == 0)]["SpanId"])


def test_the_chain_above_a_failure_only_repeats_it() -> None:
    assert roots(
        span("gateway", "", 0, 100, "HTTP 502"),
        span("orchestrator", "gateway", 5, 95, "step failed: timed out after 30s"),
        span("tool", "orchestrator", 10, 90, "timed out after 30s", "TimeoutError"),
    ) == {"tool"}


def test_a_failure_that_was_handled_does_not_hide_a_later_one_above() -> None:
    assert roots(
        span("orchestrator", "", 0, 100, "answer fails its format check", "ValidationError"),
        span("tool", "orchestrator", 10, 20, "timed out after 30s", "TimeoutError"),
        span("generate", "orchestrator", 25, 90),
    ) == {"tool", "orchestrator"}


def test_two_failures_side_by_side_are_two() -> None:
    assert roots(
        span("root", "", 0, 100, ""),
        span("a", "root", 10, 90, "no such table"),
        span("b", "root", 10, 95, "timed out"),
    ) == {"a", "b"}


def test_spans_between_that_did_not_fail_and_a_missing_parent_do_no_harm() -> None:
    assert roots(span("top", "", 0, 100, "x"), span("mid", "top", 1, 99), span("low", "mid", 2, 98, "deep")) == {"low"}
    assert roots(span("low", "never-came", 2, 98, "deep")) == {"low"}
    assert roots(span("self", "self", 2, 98, "own parent")) == {"self"}


def test_a_request_that_was_answered_all_the_same_is_marked() -> None:
    marked = failures_echo.mark(pd.DataFrame([span("root", "", 0, 100), span("tool", "root", 1, 2, "refused")]))
    assert set(marked["Recovered"]) == {1}


@pytest.mark.parametrize(
    ("stack", "wanted"),
    [
        (
            'Traceback (most recent call last):\n  File "/srv/app/run.py", line 10, in main\n    go()\n'
            '  File "/srv/app/tools.py", line 77, in call\n    raise E\nE: x',
            ["tools.py:call", "run.py:main"],
        ),
        (
            "java.io.IOException: x\n\tat a.b.Client.read(Client.java:33)\n\tat a.b.Main.main(Main.java:3)",
            ["a.b.Client.read", "a.b.Main.main"],
        ),
        (
            "Error: x\n    at call (/app/tool.js:10:5)\n    at async Agent.run (/app/agent.js:7:1)",
            ["tool.js:call", "agent.js:Agent.run"],
        ),
        ("", []),
    ],
)
def test_frames_without_line_numbers(stack: str, wanted: list[str]) -> None:
    assert frames(stack) == wanted


def test_types_and_codes() -> None:
    assert error_type("builtins.TimeoutError", "") == "TimeoutError"
    assert error_type("", "ResourceExhausted: GPU memory allocation failed") == "ResourceExhausted"
    assert error_type("_OTHER", "something odd") == ""
    assert status_code("", "HTTP 404 from search") == "404"
    assert status_code("", "upstream answered 503 Service Unavailable") == "503"
    assert status_code("", "took 404 ms") == ""
    assert result_error('{"error": {"type": "x", "message": "no such city"}}') == "no such city"


SCENE_TEXTS = [
    ("TimeoutError: Tool execution exceeded 30s", True, {}, "tool_timeout"),
    ("httpx.ReadTimeout: read operation timed out", False, {}, "tool_timeout"),
    ("ResourceExhausted: GPU memory allocation failed", False, {}, "resource_exhausted"),
    ("ResourceExhausted: GPU memory allocation failed", False, {"kv_usage": 0.97}, "kv_overflow"),
    ("ServiceDegradedError: fallback_to_basic_mode", False, {}, "degraded_mode"),
    ("AgentExecutionFailed: resource_quota_exhausted", False, {}, "resource_exhausted"),
    ("StateConflictError: session s-1 is held by another writer", False, {}, "state_deadlock"),
    ("UnicodeEncodeError: 'utf-8' codec can't encode character", False, {}, "serialisation_crash"),
    ("ValueError: embedded null byte", False, {}, "serialisation_crash"),
    ("This model's maximum context length is 8192 tokens, you requested 9000", False, {}, "kv_overflow"),
    ("", False, {"kv_usage": 0.95, "preemptions": 3.0}, "kv_overflow"),
    ("KeyError: 'city'", True, {}, "new"),
    ("division by zero", False, {}, "new"),
    ("a discontinued preprint", False, {}, "new"),
]


@pytest.mark.parametrize(("text", "tool", "facts", "wanted"), SCENE_TEXTS)
def test_scenes(text: str, tool: bool, facts: dict[str, float], wanted: str) -> None:
    assert scenes.name(text, tool=tool, facts=facts) == wanted


def pattern(text: str, stage: str = "s", kind: str = "", code: str = "", scene: str = "new") -> Pattern:
    return Pattern(
        f"{abs(hash((text, stage, kind, code))):012x}"[:12], text, skeleton(text), kind, code, stage, (), scene
    )


def together(one: Pattern, other: Pattern) -> bool:
    homes = assign([one, other], [], {}, NOBODY)
    return homes[one.pattern_id] == homes[other.pattern_id]


def test_level_two_joins_what_says_the_same_and_parts_what_does_not() -> None:
    long = "KV cache cannot allocate blocks for request"
    assert together(pattern(long, "generate", "ResourceExhausted"), pattern(long, "aggregate", "ResourceExhausted"))
    assert not together(pattern("timed out", "a", "TimeoutError"), pattern("timed out", "b", "TimeoutError"))
    assert not together(pattern("Failed to start service"), pattern("Failed to stop service"))
    assert not together(
        pattern("request refused by upstream", code="404"), pattern("request refused by upstream", code="500")
    )
    assert not together(
        pattern("no such city in the table", kind="KeyError"), pattern("disk quota reached on volume", kind="OSError")
    )
    assert together(
        pattern("null byte in text", scene="serialisation_crash"), pattern("codec fails", scene="serialisation_crash")
    )
    assert not together(pattern(long, scene="kv_overflow"), pattern(long, "t", scene="resource_exhausted"))


def test_two_groups_of_five_rows_are_two_clusters_and_no_noise() -> None:
    items = [pattern(f"tool {name} sent no answer in time") for name in "ab"] + [
        pattern("schema of the answer is not valid")
    ]
    homes = assign(items, [], {}, NOBODY)
    assert len(homes) == 3
    assert all(home.startswith("fc-") for home in homes.values())


def test_what_a_person_parted_stays_apart_and_known_clusters_do_not_move() -> None:
    one, other = (
        pattern("null byte in text", scene="serialisation_crash"),
        pattern("codec fails", scene="serialisation_crash"),
    )
    apart = frozenset([frozenset((one.pattern_id, other.pattern_id))])
    homes = assign([one, other], [], {}, apart)
    assert homes[one.pattern_id] != homes[other.pattern_id]
    later = assign([other], [one], {one.pattern_id: "fc-old"}, NOBODY)
    assert later == {other.pattern_id: "fc-old"}
    assert (
        assign([other], [one], {one.pattern_id: "fc-old"}, frozenset([frozenset((other.pattern_id, "fc-old"))]))
        != later
    )


def test_similarity_is_the_same_both_ways() -> None:
    items = [
        pattern(text, stage) for text, stage in (("no such city", "a"), ("no such town", "a"), ("quota reached", "b"))
    ]
    matrix = similarity(items, items)
    assert (matrix == matrix.T).all()
    assert matrix.diagonal() == pytest.approx(1.0)


def test_tools_by_what_falls_without_them() -> None:
    found = contribution([(frozenset("a"), 30), (frozenset("b"), 10), (frozenset("ab"), 20), (frozenset([""]), 40)])
    assert [(row["tool"], row["failed"], round(row["without"], 2)) for row in found] == [("a", 50, 0.3), ("b", 30, 0.6)]


@given(
    st.lists(st.tuples(st.frozensets(st.sampled_from(["", "a", "b", "c"]), min_size=1), st.integers(1, 50)), min_size=1)
)
def test_tools_never_spare_more_than_all_and_never_fall(sets: list[tuple[frozenset[str], int]]) -> None:
    falls = [row["without"] for row in contribution(sets)]
    assert falls == sorted(falls)
    assert all(0.0 <= value <= 1.0 for value in falls)


def test_curl_repeats_the_request_and_tells_no_user() -> None:
    entry = {
        "http.request.method": "POST",
        "http.route": "/v1/answers",
        "server.address": "10.0.0.1",
        "server.port": "8080",
        "user.id": "anna",
        "agent.task": "it's",
    }
    command = curl([{"said": entry}, {"said": {}}])
    assert command.startswith("curl -sS -X POST http://10.0.0.1:8080/v1/answers")
    assert "anna" not in command
    assert "agent.task" in command
    assert curl([{"said": {"url.full": "http://a/b", "http.request.method": "GET"}}]) == "curl -sS -X GET http://a/b"
    assert curl([{"said": {"gen_ai.request.model": "x"}}]) == ""


def test_trend_needs_traffic_and_significance() -> None:
    assert trend(10, 1000, 0, 0)[0] == "unknown"
    assert trend(10, 1000, 0, 1000)[0] == "new"
    assert trend(60, 1000, 20, 1000)[0] == "rising"
    assert trend(20, 1000, 60, 1000)[0] == "falling"
    assert trend(200, 10_000, 20, 1000)[0] == "steady"
    assert trend(4, 1000, 2, 1000)[0] == "steady"


def test_wilson_is_low_for_few() -> None:
    assert wilson_low(3, 100) < 0.03
    assert wilson_low(0, 0) == 0.0
    assert wilson_low(5, 100_000) < 0.001


def test_a_label_keeps_the_words_and_drops_what_varies() -> None:
    message = "session 8271 version 3 was written by another request"
    assert outline(message, skeleton(message)) == "session … version … was written by another request"
