"""The failure room over a store: collected once, right scenes, ids that last for weeks, people's verdicts, the analyzer exam, bad input."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from analytics import failures, failures_impact, failures_load, failures_patterns
from analytics.failures_collect import arrow
from analytics.failures_impact import appendix
from analytics.failures_patterns import Patterns
from analytics.findings import Window
from ingest.store import Store
from tests.analytics.failure_world import Fault, fill

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
DAY = timedelta(days=1)
SCENES = {
    "tool_timeout": Fault("data_fetch", 0.3, "TimeoutError", "Tool execution exceeded {n}s", tool="web_search"),
    "kv_overflow": Fault(
        "llm_generate", 0.06, "ResourceExhausted", "GPU memory allocation failed", evidence=(("kv_usage", 0.97),)
    ),
    "serialisation_crash": Fault(
        "intent_parse",
        0.05,
        "UnicodeEncodeError",
        "'utf-8' codec can't encode character in position {n}: surrogates not allowed",
    ),
    "state_deadlock": Fault(
        "tool_select", 0.03, "StateConflictError", "session {id} is held by another writer for over {n} s"
    ),
    "resource_exhausted": Fault("tool_select", 0.03, "AgentExecutionFailed", "resource_quota_exhausted"),
    "degraded_mode": Fault("llm_generate", 0.04, "ServiceDegradedError", "fallback_to_basic_mode"),
    "new": Fault("intent_parse", 0.03, "ValueError", "no such intent for request {id} of tenant {n}"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store")) as opened:
        yield opened


def window(day: int, days: int = 1) -> Window:
    return Window(MONDAY + day * DAY, MONDAY + (day + days) * DAY)


def test_each_scene_is_one_cluster_and_keeps_its_id_over_four_weeks(store: Store) -> None:
    """Volumes, numbers, ids and seeds change from week to week; the ids do not."""
    seen: list[dict[str, str]] = []
    for week in range(4):
        failed = fill(store, MONDAY + 7 * week * DAY, 500 + 300 * week, tuple(SCENES.values()), seed=week + 1)
        span = window(7 * week)
        assert failures.collect(store, span) > 0
        assert failures.collect(store, span) == 0
        found = failures.clusters(store, span)
        assert sorted(found["scene"]) == sorted(SCENES)
        assert int(found["count"].sum()) == failed
        assert [*found.columns[: len(failures.COLUMNS)]] == failures.COLUMNS
        seen.append(dict(zip(found["scene"], found["cluster_id"], strict=True)))
    assert seen[0] == seen[1] == seen[2] == seen[3]
    tool = found[found["scene"] == "tool_timeout"].iloc[0]
    assert (tool["stage"], tool["tool"]) == ("data_fetch", "web_search")
    assert tool["first_seen"] < pd.Timestamp(MONDAY + DAY).tz_localize(None) or tool["first_seen"] < pd.Timestamp(
        MONDAY + DAY
    )
    assert "web_search" in tool["label"]


def test_the_analyzer_exam(store: Store) -> None:
    """No data: nothing. Healthy: nothing. Shuffled, repeated and unrelated rows: the same. Next week: the same keys."""
    load, find = failures.ANALYZER.load, failures.ANALYZER.find
    assert find(load(store, window(0))) == []
    fill(store, MONDAY, 300, ())
    assert find(load(store, window(0))) == []
    faults = (SCENES["tool_timeout"], SCENES["new"])
    fill(store, MONDAY + DAY, 400, faults, seed=3)
    first = find(load(store, window(1)))
    assert [item.kind for item in first] == ["failure"] * 2
    fill(store, MONDAY + DAY, 400, faults, seed=3)
    assert find(load(store, window(1))) == first
    shuffled = load(store, window(1)).clusters.sample(frac=1, random_state=1)
    assert find(failures.Data(shuffled, 400, window(1))) == first
    fill(store, MONDAY + 8 * DAY, 400, faults, seed=4)
    assert {item.key for item in find(load(store, window(8)))} == {item.key for item in first}


def test_a_finding_says_what_an_engineer_needs(store: Store) -> None:
    fill(store, MONDAY, 500, (SCENES["kv_overflow"],), seed=2)
    found = failures.find(failures.load(store, window(0)))[0]
    assert found.cause == "kv_cache_pressure"
    assert found.subject["stage"] == "llm_generate"
    assert found.users > 0
    assert found.requests == len(store.read("SELECT DISTINCT TraceId FROM failures WHERE Echo = 0"))
    assert 0 < found.lost_low < found.lost_seconds < found.lost_high
    assert "truncate" in found.recommendation
    assert "10-turn" in found.verify
    assert len(store.read(found.query)) == min(20, found.requests)


def test_people_join_and_part_clusters_for_good(store: Store) -> None:
    faults = (SCENES["new"], SCENES["resource_exhausted"])
    fill(store, MONDAY, 500, faults)
    failures.collect(store, window(0))
    one, other = sorted(failures.clusters(store, window(0))["cluster_id"])
    failures_patterns.same(store, one, other, "both from the same release")
    for day in (0, 7):
        fill(store, MONDAY + day * DAY, 500, faults, seed=day + 9)
        failures.collect(store, window(day))
        joined = failures.clusters(store, window(day))
        assert len(joined) == 1
        assert joined.iloc[0]["cluster_id"] in (one, other)
    assert failures_load.representatives(store) != {}


def test_a_pattern_that_a_person_took_out_stays_out(store: Store) -> None:
    text = "'utf-8' codec can't encode character in position {n}: surrogates not allowed"
    faults = (
        Fault("intent_parse", 0.1, "UnicodeEncodeError", text),
        Fault("intent_parse", 0.1, "ValueError", "embedded null byte in field {n}"),
    )
    fill(store, MONDAY, 500, faults)
    failures.collect(store, window(0))
    assert len(failures.clusters(store, window(0))) == 1
    rows = store.read("SELECT PatternId, ClusterId FROM failure_patterns WHERE ErrorType = 'ValueError'").iloc[0]
    failures_patterns.not_same(store, str(rows["ClusterId"]), str(rows["PatternId"]))
    for day in (0, 7):
        fill(store, MONDAY + day * DAY, 500, faults, seed=day + 9)
        failures.collect(store, window(day))
        assert len(failures.clusters(store, window(day))) == 2


def test_a_late_span_corrects_what_it_touches(store: Store) -> None:
    fault = (SCENES["new"],)
    fill(store, MONDAY, 300, fault)
    failures.collect(store, window(0))
    before = failures.clusters(store, window(0)).iloc[0]
    victim = store.read(
        "SELECT * EXCEPT (Evidence, Revision) FROM stage_runs WHERE Failed = 1 AND Stage = 'intent_parse' LIMIT 1"
    )
    deeper = victim.assign(
        ParentSpanId=victim["SpanId"],
        SpanId="feedfeedfeedfeed",
        Stage="db_read",
        ErrorMessage="relation does not exist",
    )
    deeper["Timestamp"] = pd.to_datetime(deeper["Timestamp"], utc=True)
    store.insert("stage_runs", deeper)
    assert failures.collect(store, window(0)) == 2
    found = failures.clusters(store, window(0)).set_index("stage")
    assert found.loc["db_read", "count"] == 1
    assert found.loc["intent_parse", "count"] == before["count"] - 1


def documents(messages: list[str], kind: str = "") -> pd.DataFrame:
    count = len(messages)
    frame = pd.DataFrame({"Message": messages, "Stage": "s", "ErrorType": kind, "Tool": "", "ServiceName": "x"})
    frame["Timestamp"] = pd.Timestamp(MONDAY) + pd.to_timedelta(np.arange(count) % 86_400, unit="s")
    frame["TraceId"] = [f"{number:032x}" for number in range(count)]
    frame["SpanId"] = [f"{number:016x}" for number in range(count)]
    frame["Frames"] = [[] for _ in range(count)]
    frame["Context"] = [[] for _ in range(count)]
    return frame


def test_hostile_messages_are_grouped_and_stored(store: Store) -> None:
    hostile = [
        "",
        "x" * 1_000_000,
        "\x00\x01\x02 binary",
        "🔥🔥🔥",
        "\ufffd\ufffd",
        "a\nb\tc",
        "'" * 5000,
        "{" * 5000,
        "ok",
    ]
    patterns = Patterns.load(store)
    placed = patterns.place(documents(hostile * 3))
    assert placed["ClusterId"].ne("").all()
    store.insert("failures", arrow(placed))
    patterns.save(store)
    again = Patterns.load(store).place(documents(hostile * 3))
    assert again["ClusterId"].tolist() == placed["ClusterId"].tolist()
    assert len(failures.clusters(store, window(0))) >= 5


def test_every_text_different_ends_in_one_cluster_for_the_rest(store: Store) -> None:
    rng = np.random.default_rng(5)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, 8)) for _ in range(18_000)]
    messages = [" ".join(words[i : i + 3]) for i in range(0, 18_000, 3)]
    start = time.process_time()
    patterns = Patterns.load(store)
    placed = patterns.place(documents(messages, "ModelSaid"))
    patterns.save(store)
    sizes = placed["ClusterId"].value_counts()
    assert sizes.iloc[0] >= 6000 - 2500
    assert len(store.read("SELECT PatternId FROM failure_patterns")) <= 2500
    assert time.process_time() - start < 60


@pytest.mark.slow
def test_100_000_failures_take_seconds(store: Store) -> None:
    """A week of a million is ten of these: at most 60 s."""
    rng = np.random.default_rng(1)
    kinds = list(SCENES.values())
    picks, numbers = rng.integers(0, len(kinds), 100_000), rng.integers(2, 10**9, 100_000)
    messages = [
        kinds[pick].message.format(n=number, id=f"{number:016x}") for pick, number in zip(picks, numbers, strict=True)
    ]
    frame = documents(messages)
    frame["Stage"] = [kinds[pick].stage for pick in picks]
    frame["ErrorType"] = [kinds[pick].error_type for pick in picks]
    start = time.process_time()
    placed = Patterns.load(store).place(frame)
    assert time.process_time() - start < 6.0
    assert placed["ClusterId"].nunique() == len(kinds)


def test_a_ticket_of_a_failure_carries_the_walk_and_the_fingerprint(store: Store) -> None:
    fill(store, MONDAY, 300, (SCENES["kv_overflow"],), seed=2)
    found = failures.find(failures.load(store, window(0)))[0]
    text = appendix(store, found)
    assert "- [x] Is it the cache? KV cache usage 0.97" in text
    assert "- [ ] Is it serialisation? payload size was not reported" in text
    assert "- error: `ResourceExhausted`" in text
    span = {
        "Timestamp": pd.Timestamp(found.window.start),
        "TraceId": store.value("SELECT TraceId FROM failures WHERE Echo = 0 ORDER BY TraceId LIMIT 1"),
        "SpanId": "01",
        "SpanName": "POST /v1/answers",
    }
    said = pa.array(
        [[("http.route", "/v1/answers"), ("user.id", "u1"), ("agent.task", "report")]],
        pa.map_(pa.string(), pa.string()),
    )
    table = pa.Table.from_pandas(pd.DataFrame([span]), preserve_index=False)
    store.insert("otel_traces", table.append_column("SpanAttributes", said))
    store.command("DELETE FROM stage_runs WHERE TraceId NOT IN (SELECT TraceId FROM otel_traces)")
    assert "curl -sS -X POST http://127.0.0.1/v1/answers" in appendix(store, found)
    assert failures_impact.tools(store, window(0)) == []
