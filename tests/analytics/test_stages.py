"""Spans in a store become stage runs: columns, gaps, rebuilds, late spans, a table as a Collector made it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from analytics.findings import Window
from analytics.stages import build, build_touched
from analytics.traces import waterfall
from ingest.errors import BadInput
from ingest.store import Store

START = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
DAY = Window(START - timedelta(hours=12), START + timedelta(hours=12))


@dataclass(frozen=True)
class Span:
    id: str
    parent: str = ""
    at_ms: float = 0
    ms: float = 10
    service: str = "gateway"
    kind: str = "Internal"
    name: str = ""
    trace: str = "t1"
    attributes: dict[str, str] = field(default_factory=dict)


def insert(store: Store, spans: Sequence[Span], **over: object) -> None:
    rows = [
        {
            "Timestamp": pd.Timestamp(START) + pd.Timedelta(span.at_ms, "ms"),
            "TraceId": span.trace,
            "SpanId": span.id,
            "ParentSpanId": span.parent,
            "SpanName": span.name or span.id,
            "SpanKind": span.kind,
            "ServiceName": span.service,
            "SpanAttributes": span.attributes,
            "ResourceAttributes": {"cloud.region": "eu"},
            "Duration": int(span.ms * 1e6),
            "StatusCode": "Unset",
            **over,
        }
        for span in spans
    ]
    values = ", ".join("(" + ", ".join(_literal(row[name]) for name in rows[0]) + ")" for row in rows)
    store.command(f"INSERT INTO otel_traces ({', '.join(rows[0])}) VALUES {values}")


def _literal(value: object) -> str:
    if isinstance(value, pd.Timestamp):
        return f"fromUnixTimestamp64Nano({value.value})"
    if isinstance(value, dict):
        return "map(" + ", ".join(f"'{k}', '{v}'" for k, v in value.items()) + ")" if value else "map()"
    return str(value) if isinstance(value, int) else f"'{value}'"


CALL = (
    Span("root", "", 0, 100, kind="Server"),
    Span("call", "root", 10, 80, kind="Client"),
    Span("serve", "call", 30, 40, "worker", "Server"),
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("stages") / "store")) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in (
        "otel_traces",
        "otel_traces_trace_id_ts",
        "stage_runs",
        "stage_touched",
        "stage_progress",
        "stage_hours",
    ):
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def runs(store: Store) -> pd.DataFrame:
    return store.read("SELECT *, toString(Stage) AS S FROM stage_runs FINAL ORDER BY TraceId, SpanId").set_index(
        "SpanId"
    )


def test_a_call_gives_three_runs_and_a_gap(store: Store) -> None:
    insert(store, CALL)
    report = build(store, DAY)
    assert (report.traces, report.spans, report.runs, report.gaps) == (1, 3, 4, 1)
    found = runs(store)
    gap = found.loc["call-gap"]
    assert (gap["S"], gap["Kind"], gap["ParentSpanId"]) == ("gap: gateway → worker", "gap", "call")
    assert (gap["Duration"], gap["SelfTime"]) == (40_000_000, 40_000_000)
    assert gap["Evidence"] == {"request_leg_ms": 20.0, "response_leg_ms": 20.0}
    assert found.loc["call", "SelfTime"] == 0
    assert found["CriticalTime"].sum() == 100_000_000
    assert set(found["TraceDuration"]) == {100_000_000}
    assert set(found["Region"]) == {"eu"}
    assert found["InputTokens"].isna().all()


def test_building_twice_and_doubled_spans_change_nothing(store: Store) -> None:
    insert(store, CALL)
    build(store, DAY)
    once = runs(store).drop(columns="Revision")
    insert(store, CALL)
    build(store, DAY)
    pd.testing.assert_frame_equal(runs(store).drop(columns="Revision"), once)


def test_a_late_span_rebuilds_its_whole_trace(store: Store) -> None:
    insert(store, CALL[1:])
    assert build_touched(store).orphans == 1
    assert "orphan" in runs(store).loc["call", "Marks"]
    insert(store, CALL[:1])
    insert(store, [Span("x", trace="t2")])
    assert build_touched(store).traces == 2
    found = runs(store)
    assert found.loc["call", "Marks"] == ""
    assert len(found) == 5
    assert build_touched(store).traces == 0


def test_what_a_collector_stored_before_our_tables_were_made_is_built_at_the_first_call(store: Store) -> None:
    insert(store, CALL)
    for table in ("stage_touched", "stage_progress"):
        store.command(f"TRUNCATE TABLE {table}")
    assert build_touched(store).runs == len(CALL) + 1  # a gap
    assert build_touched(store).traces == 0


def test_rows_that_vanish_are_buried(store: Store) -> None:
    insert(store, CALL)
    build(store, DAY)
    insert(store, [Span("serve2", "call", 60, 10, "worker", "Server")])
    report = build_touched(store)
    assert report.removed == 1
    assert "call-gap" not in runs(store).index
    assert len(runs(store)) == 4


def test_a_trace_that_straddles_the_window_is_built_whole(store: Store) -> None:
    hour = 3_600_000
    insert(store, [Span("root", "", 0, 3 * hour), Span("late", "root", 2.9 * hour, 1000)])
    middle = Window(START + timedelta(hours=2.5), START + timedelta(hours=3))
    assert build(store, middle).spans == 2
    assert runs(store).loc["root", "SelfTime"] == int((3 * hour - 1000) * 1e6)
    assert build(store, Window(START + timedelta(hours=5), START + timedelta(hours=6))).spans == 0


def test_waterfall_is_in_tree_order_with_gaps(store: Store) -> None:
    insert(store, [*CALL, Span("lost", "nowhere", 5, 1)])
    build(store, DAY)
    found = waterfall(store, "T1")
    assert found["span_id"].tolist() == ["root", "call", "call-gap", "serve", "lost"]
    assert found["depth"].tolist() == [0, 1, 2, 2, 0]
    assert found["start_ms"].tolist()[:2] == [0.0, 10.0]
    assert found["gap"].tolist() == [False, False, True, False, False]
    assert found["unjustified_ms"].isna().all()
    with pytest.raises(BadInput):
        waterfall(store, "nothing")


def test_large_and_deep_traces_and_ids_in_names(store: Store) -> None:
    deep = [Span(f"d{i}", f"d{i - 1}" if i else "", i, 4000 - 2 * i, trace="deep") for i in range(1000)]
    wide = [
        Span("w", "", 0, 9000, trace="wide"),
        *(Span(f"w{i}", "w", i, 5, name=f"GET /users/{10_000_000 + i}", trace="wide") for i in range(1500)),
    ]
    insert(store, [*deep, *wide])
    report = build(store, DAY)
    assert report.spans == 2501
    assert int(store.value("SELECT uniqExact(Stage) FROM stage_runs FINAL WHERE TraceId = 'wide'")) < 10
    total = store.read("SELECT TraceId, sum(CriticalTime) AS c FROM stage_runs FINAL GROUP BY TraceId ORDER BY TraceId")
    assert total["c"].tolist() == [4_000_000_000, 9_000_000_000]


def test_a_collectors_own_table_and_its_negative_durations(store: Store) -> None:
    """The last test of the file: the table stays as it is afterwards."""
    columns = store.read("DESCRIBE TABLE otel_traces")
    ours = [name for name in columns["name"] if name in ("Marks", "IngestedAt")]
    for view in ("otel_traces_trace_id_ts_mv", "stage_touched_mv"):
        store.command(f"DROP VIEW IF EXISTS {view}")
    for name in ours:
        store.command(f"ALTER TABLE otel_traces DROP COLUMN {name}")
    insert(store, [CALL[0]])
    insert(store, [Span("back", "root", 5)], Duration=18446744073709551000)
    assert build(store, DAY).runs == 2
    assert runs(store).loc["back", "Duration"] == 0


def test_a_model_servers_span_gives_its_time_and_facts_to_the_stage_that_asked(store: Store) -> None:
    model = {"gen_ai.request.model": "smollm2", "gen_ai.usage.input_tokens": "9", "stagescope.stage": "tool_select"}
    served = {
        "gen_ai.usage.prompt_tokens": "12",
        "gen_ai.usage.completion_tokens": "4",
        "gen_ai.latency.time_in_queue": "0.02",
    }
    insert(
        store,
        [
            Span("a", at_ms=0, ms=100),
            Span("b", "a", at_ms=10, ms=80, kind="Server", service="edge", attributes=model),
            Span("p", "b", at_ms=15, ms=70, kind="Client", service="edge", name="POST"),
            Span("e", "p", at_ms=20, ms=60, kind="Server", service="vllm-edge", name="llm_request", attributes=served),
        ],
    )
    build(store, DAY)
    found = runs(store)
    assert found.loc["b", "SelfTime"] == 70e6
    assert found.loc["e", "SelfTime"] == found.loc["e", "CriticalTime"] == 0
    assert found.loc["p-gap", "SelfTime"] == 10e6
    assert found["CriticalTime"].sum() == 100e6
    assert (found.loc["b", "InputTokens"], found.loc["b", "OutputTokens"]) == (9, 4)
    assert found.loc["b", "Evidence"]["queue_ms"] == 20
    assert found.loc["b", "S"] == "tool_select"


def test_a_model_servers_span_below_no_model_call_stays_a_stage(store: Store) -> None:
    insert(store, [Span("a", ms=100), Span("e", "a", at_ms=20, ms=60, kind="Server", service="v", name="llm_request")])
    build(store, DAY)
    found = runs(store)
    assert (found.loc["a", "SelfTime"], found.loc["e", "SelfTime"]) == (40e6, 60e6)


def test_two_answers_of_a_model_server_in_one_stage_add_up_and_lend_nothing(store: Store) -> None:
    model, queue = {"gen_ai.request.model": "smollm2"}, {"gen_ai.latency.time_in_queue": "0.02"}
    insert(
        store,
        [
            Span("a", ms=100, attributes=model),
            Span("e", "a", at_ms=10, ms=30, kind="Server", service="v", name="llm_request", attributes=queue),
            Span("f", "a", at_ms=50, ms=30, kind="Server", service="v", name="llm_request", attributes=queue),
        ],
    )
    build(store, DAY)
    found = runs(store)
    assert found.loc["a", "SelfTime"] == 100e6
    assert "queue_ms" not in found.loc["a", "Evidence"]
