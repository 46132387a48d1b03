"""What a span means: stages.toml against spans of each convention, by the SQL that the stage builder runs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ingest import mapping
from ingest.errors import BadSetting
from ingest.mapping_facts import quote
from ingest.store import Store

Mapped = Callable[..., pd.Series]
Known = dict[tuple[str, str], tuple[str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("mapping"))) as opened:
        yield opened


TEXTS = "CAST(mapFromArrays({{{0}_k:Array(String)}}, {{{0}_v:Array(String)}}), 'Map(LowCardinality(String), String)')"


def _source(name: str, attributes: dict[str, str], **more: Any) -> tuple[str, dict[str, Any]]:
    """One span as a query; `event` is an exception event's attributes."""
    event = more.get("event")
    params: dict[str, Any] = {
        "name": name, "kind": more.get("kind", "Internal"), "status": more.get("status", "Unset"),
        "message": more.get("message", ""), "duration": 5_000_000, "events": [] if event is None else ["exception"],
    }  # fmt: skip
    for key, found in (("span", attributes), ("resource", more.get("resource", {})), ("event", event or {})):
        params |= {f"{key}_k": list(found), f"{key}_v": list(found.values())}
    return (
        "(SELECT toLowCardinality({name:String}) AS SpanName, toLowCardinality({kind:String}) AS SpanKind, 'svc' AS ServiceName, "
        f"{TEXTS.format('span')} AS SpanAttributes, {TEXTS.format('resource')} AS ResourceAttributes, "
        "{duration:UInt64} AS Duration, {status:String} AS StatusCode, {message:String} AS StatusMessage, "
        f"{{events:Array(String)}} AS `Events.Name`, arrayMap(x -> {TEXTS.format('event')}, {{events:Array(String)}}) AS `Events.Attributes`)"
    ), params


@pytest.fixture
def mapped(store: Store) -> Mapped:
    def run(
        name: str, attributes: dict[str, str] | None = None, rules: mapping.StageMapping | None = None, **more: Any
    ) -> pd.Series:
        source, params = _source(name, attributes or {}, **more)
        return store.read((rules or mapping.load()).select(source, keep=("SpanName",)), **params).iloc[0]

    return run


NAMES = [
    ("GET /users/17/orders/42", "GET /users/{n}/orders/{n}"),
    ("GET /users/3fa85f64-5717-4562-b3fc-2c963f66afa6", "GET /users/{id}"),
    ("GET https://api.example.com/v2/items?id=7&x=y", "GET /v2/items"),
    ("task 12 of 30", "task {n} of {n}"),
    ("load 5f2b9c1d8a7e6f50", "load {id}"),
    ("worker-7", "worker-{n}"),
    ("order_12345678", "order_{n}"),
    ("call toolu_01A09q90qw90lq917835lq9", "call {id}"),
    ("chat gpt-4o", "chat gpt-4o"),
    ("tool_select", "tool_select"),
    ("sha256 base64 utf8 h264", "sha256 base64 utf8 h264"),
    ("/api/v1/feedback", "/api/v1/feedback"),
    ("deadbeef facade", "deadbeef facade"),
    ("生成回答", "生成回答"),
    ("tell me in one long sentence why the sky is blue at noon", "tell me in one long sentence why the sky is…"),
    ("x" * 500, "x" * 120),
]
CASES: list[tuple[str, dict[str, str], str, str]] = [
    ("tool_select", {"stagescope.stage": "tool_select", "stagescope.kind": "decide"}, "tool_select", "decide"),
    ("chat gpt-4o", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}, "chat", "generate"),
    (
        "execute_tool weather",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"},
        "execute_tool weather",
        "fetch",
    ),
    ("invoke_agent planner", {"gen_ai.operation.name": "invoke_agent"}, "invoke_agent planner", "decide"),
    ("invoke_agent writer", {"gen_ai.operation.name": "invoke_agent"}, "invoke_agent writer", "agent"),
    ("LiteLLMModel.generate", {"openinference.span.kind": "LLM"}, "LiteLLMModel.generate", "generate"),
    ("rank", {"openinference.span.kind": "RERANKER"}, "rank", "rerank"),
    ("self_reflection", {"openinference.span.kind": "LLM"}, "self_reflection", "check"),
    ("joke.workflow", {"traceloop.span.kind": "workflow"}, "joke.workflow", "agent"),
    ("openai.chat", {"llm.request.type": "chat", "gen_ai.system": "OpenAI"}, "openai.chat", "generate"),
    ("ai.generateText", {"ai.operationId": "ai.generateText"}, "ai.generateText", "agent"),
    (
        "ai.generateText.doGenerate",
        {"ai.operationId": "ai.generateText.doGenerate"},
        "ai.generateText.doGenerate",
        "generate",
    ),
    (
        "ai.toolCall",
        {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "weather"},
        "ai.toolCall weather",
        "fetch",
    ),
    ("llm_request", {"gen_ai.usage.prompt_tokens": "12"}, "llm_request", "generate"),
    ("GET /users/{id}", {"http.request.method": "GET"}, "GET /users/{id}", "other"),
    ("GET", {"http.method": "GET", "http.route": "/route/:id"}, "GET /route/:id", "other"),
    ("post /oauth/check_token", {}, "post /oauth/check_token", "other"),
    ("orchestrate_tools", {}, "orchestrate_tools", "agent"),
    ("SELECT shop", {"db.system": "postgresql"}, "SELECT shop", "fetch"),
    ("jobs receive", {"messaging.system": "kafka", "messaging.operation.type": "receive"}, "jobs receive", "wait"),
    ("", {}, "(unnamed)", "other"),
]


@pytest.fixture(scope="module")
def known(store: Store) -> Known:
    """(Stage, Kind) by name and attributes, of all cases in one query."""
    spans = [(name, attributes) for name, attributes, _, _ in CASES]
    spans += [(name, {}) for pair in NAMES for name in pair]
    rows = [
        f"SELECT {quote(name)} AS SpanName, 'Internal' AS SpanKind, 'svc' AS ServiceName, {_map(attributes)} AS SpanAttributes, "
        f"{_map({})} AS ResourceAttributes, toUInt64(1) AS Duration, 'Unset' AS StatusCode, '' AS StatusMessage, "
        f"CAST([], 'Array(String)') AS `Events.Name`, [{_map({})}] AS `Events.Attributes`"
        for name, attributes in spans
    ]
    found = store.read(
        mapping.load().select(f"({' UNION ALL '.join(rows)})", keep=("SpanName", "toString(SpanAttributes) AS given"))
    )
    return {(row.SpanName, row.given.replace("'", '"')): (row.Stage, row.Kind) for row in found.itertuples()}


def _map(values: dict[str, str]) -> str:
    pairs = ", ".join(f"{quote(key)}, {quote(value)}" for key, value in values.items())
    return f"CAST(map({pairs}), 'Map(LowCardinality(String), String)')"


def _given(values: dict[str, str]) -> str:
    return json.dumps(values, separators=(",", ":"))


@pytest.mark.parametrize(("name", "attributes", "stage", "kind"), CASES)
def test_stage_and_kind(known: Known, name: str, attributes: dict[str, str], stage: str, kind: str) -> None:
    assert known[name, _given(attributes)] == (stage, kind)


def test_outgoing_http_call_is_a_fetch(mapped: Mapped) -> None:
    assert (
        mapped("POST", {"http.request.method": "POST", "server.address": "api.example"}, kind="Client").Kind == "fetch"
    )


@pytest.mark.parametrize(("name", "stage"), NAMES)
def test_ids_leave_the_stage_name_and_words_stay(known: Known, name: str, stage: str) -> None:
    assert known[name, "{}"][0] == stage
    assert known[stage, "{}"][0] == stage, "normalising twice changes nothing"


def test_ten_thousand_names_with_ids_are_a_few_stages(store: Store) -> None:
    names = "['GET /cart/', 'job-', 'user ', 'doc/', 'order_', 'session:']"
    source, params = _source("", {})
    numbered = f"toLowCardinality(concat({names}[1 + number % 6], toString(1000000 + cityHash64(number))))"
    many = f"(SELECT one.* REPLACE ({numbered} AS SpanName) FROM {source} AS one, numbers(10000) AS many)"
    found = store.read(mapping.load().select(many, keep=("SpanName",)), **params)
    assert (found.SpanName.nunique(), found.Stage.nunique()) == (10_000, 6)


def test_work_is_read_under_every_name_and_unknown_is_not_zero(mapped: Mapped) -> None:
    new = mapped(
        "a",
        {
            "gen_ai.usage.input_tokens": "100",
            "gen_ai.usage.cache_read.input_tokens": "40",
            "gen_ai.usage.output_tokens": "7",
        },
    )
    old = mapped(
        "a",
        {
            "gen_ai.usage.prompt_tokens": "100",
            "gen_ai.usage.cache_read_input_tokens": "40",
            "gen_ai.usage.completion_tokens": "7",
        },
    )
    openinference = mapped(
        "a",
        {
            "llm.token_count.prompt": "100",
            "llm.token_count.prompt_details.cache_read": "40",
            "llm.token_count.completion": "7",
        },
    )
    vercel = mapped(
        "a", {"ai.usage.promptTokens": "100", "ai.usage.cachedInputTokens": "40", "ai.usage.completionTokens": "7.0"}
    )
    for row in (new, old, openinference, vercel):
        assert (row.InputTokens, row.CachedTokens, row.OutputTokens) == (100, 40, 7)
    nothing = mapped("a", {"gen_ai.usage.input_tokens": "many", "gen_ai.usage.output_tokens": "-3"})
    assert nothing[["InputTokens", "CachedTokens", "OutputTokens", "PayloadBytes", "Items", "Rows"]].isna().all()
    assert nothing.Retries == 0


def test_counted_work(mapped: Mapped) -> None:
    assert mapped("a", {"gen_ai.tool.definitions": '[{"name":"a"},{"name":"b"}]'}).Items == 2
    assert mapped("a", {"llm.tools.0.tool.json_schema": "{}", "llm.tools.1.tool.json_schema": "{}"}).Items == 2
    assert pd.isna(mapped("a", {"gen_ai.tool.definitions": "[{"}).Items)
    assert (
        mapped("a", {"retrieval.documents.0.document.content": "x", "retrieval.documents.0.document.score": "1"}).Rows
        == 1
    )


def test_span_says_more_than_resource_and_resource_fills_in(mapped: Mapped) -> None:
    resource = {"service.version": "2.1", "cloud.region": "eu-1", "host.name": "n1", "user.tier": "free"}
    row = mapped("a", {"region": "us-1", "user.tier": "paid", "device.type": "phone"}, resource=resource)
    assert (row.Region, row.UserTier, row.Version, row.Host, row.Device) == ("us-1", "paid", "2.1", "n1", "phone")


def test_evidence_in_the_unit_its_name_says(mapped: Mapped) -> None:
    row = mapped(
        "llm_request",
        {
            "gen_ai.latency.time_in_queue": "0.25",
            "gen_ai.latency.time_to_first_token": "1.5",
            "stagescope.cold_start": "true",
        },
    )
    assert row.Evidence == pytest.approx({"queue_ms": 250.0, "ttft_ms": 1500.0, "cold_start": 1.0})
    row = mapped(
        "a",
        {
            "stagescope.queue_ms": "3",
            "gen_ai.latency.time_in_queue": "9",
            "stagescope.outcome_changed": "False",
            "stagescope.gpu": "none",
        },
    )
    assert row.Evidence == {"queue_ms": 3.0, "outcome_changed": 0.0}, "first key wins; what is no number is left out"


def test_declared_wait_is_nanoseconds_and_never_longer_than_the_span(mapped: Mapped) -> None:
    assert mapped("a", {"stagescope.wait_ms": "1.5"}).WaitTime == 1_500_000
    assert mapped("a", {"stagescope.wait_ms": "99"}).WaitTime == 5_000_000
    assert [mapped("a", {"stagescope.wait_ms": bad}).WaitTime for bad in ("-1", "nan", "soon")] == [0, 0, 0]
    assert mapped("long_poll").WaitTime == 5_000_000


def test_what_counts_as_failed(mapped: Mapped) -> None:
    error = mapped("a", status="Error", message="TimeoutError: Tool execution exceeded 30s")
    assert (error.Failed, error.ErrorType, error.ErrorMessage) == (
        1,
        "TimeoutError",
        "TimeoutError: Tool execution exceeded 30s",
    )
    event = {"exception.type": "ValueError", "exception.message": "no"}
    raised = mapped("a", event=event)
    assert (raised.Failed, raised.ErrorType, raised.ErrorMessage) == (1, "ValueError", "no")
    assert mapped("a", event=event, status="Ok").Failed == 0, "the author says Ok: the exception was handled"
    assert mapped("a", {"http.response.status_code": "503"}).ErrorType == "503"
    assert mapped("a", {"http.response.status_code": "404"}).Failed == 0
    assert mapped("a", {"error.type": "x"}).ErrorType == "", "no error, no type"


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("Error: connection refused", 1), ('{"error": "quota"}', 1), ('{"isError": true}', 1), ('{"error": null, "rows": 3}', 0),
        ("TimeoutError: exceeded 30s", 1), ("Errors are listed in chapter 3", 0), ("All good", 0),
    ],
)  # fmt: skip
def test_error_in_a_tools_answer(mapped: Mapped, result: str, failed: int) -> None:
    row = mapped("execute_tool x", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": result})
    assert row.Failed == failed
    assert bool(row.ErrorMessage) == bool(failed)
    assert mapped("answer", {"openinference.span.kind": "LLM", "output.value": result}).Failed == 0, (
        "only a tool's answer"
    )


def test_text_in_an_edited_file_never_becomes_sql(mapped: Mapped, tmp_path: Path) -> None:
    nasty = "a'b\\c"
    path = tmp_path / "stages.toml"
    path.write_text(
        f'[text]\nTool = ["{nasty.replace(chr(92), chr(92) * 2)}"]\n[[kind]]\nspan = "x\'y"\nkind = "check"\n'
    )
    rules = mapping.load(path)
    row = mapped("x'y", {nasty: "it's"}, rules=rules)
    assert (row.Tool, row.Kind, row.Stage) == ("it's", "check", "x'y")


def test_missing_file_and_empty_file(tmp_path: Path, mapped: Mapped) -> None:
    with pytest.raises(BadSetting):
        mapping.load(tmp_path / "none.toml")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    row = mapped("GET /x/1", rules=mapping.load(empty))
    assert (row.Stage, row.Kind, row.Evidence) == ("GET /x/{n}", "other", {})


def test_budgets_and_needs() -> None:
    assert (mapping.load().budgets["decide"], mapping.load().needs["prompt_tokens_per_item"]) == (400.0, 40.0)
