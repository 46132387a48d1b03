"""The roadmap: ranked, owned, compared with last week, the same for ever, safe to render."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analytics import evidence_words, roadmap, roadmap_owners
from analytics.findings import Evidence, Finding, Window, finding_key
from analytics.roadmap_owners import NOBODY
from analytics.run import _save
from ingest.errors import BadSetting
from ingest.store import Store

W48 = roadmap.week_window("2026-W48")
W47 = roadmap.week_window("2026-W47")
NASTY = '<script>alert(1)</script> | `x` & "y"'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Two weeks: in the second `a` is half gone, `b` is gone, `c` is worse, `d` is new."""
    with Store.open(str(tmp_path_factory.mktemp("roadmap") / "store")) as opened:
        for window, requests in ((W47, 1000), (W48, 2000)):
            traffic(opened, window, requests)
        week47 = [
            found("a", W47, 4000, 50),
            found("b", W47, 3000, 40),
            found("c", W47, 100, 30),
            found("low", W47, 1, 1),
        ]
        week48 = [
            found("a", W48, 3000, 50),
            found("c", W48, 900, 60),
            found("d", W48, 500, 20),
            found("low", W48, 2, 1),
        ]
        gone = replace(found("b", W48, 3000, 40), state="resolved")
        for window, findings in ((W47, week47), (W48, [*week48, gone])):
            _save(opened, window.end, window, findings)
            row = {
                "RunAt": window.end,
                "WindowFrom": window.start,
                "WindowTo": window.end,
                "Analyzer": "slow",
                "RowsRead": 9,
            }
            opened.insert("analyzer_runs", pd.DataFrame([row]))
        yield opened


def traffic(store: Store, window: Window, requests: int) -> None:
    rows = pd.DataFrame({"TraceId": [f"{window.start:%d}{number:030x}" for number in range(requests)]})
    rows["Timestamp"] = pd.Timestamp(window.start) + pd.to_timedelta(range(requests), unit="min")
    store.insert("stage_runs", rows.assign(SpanId="ab", Stage="s", ServiceName="x", Kind="agent", Duration=1))


def found(name: str, window: Window, lost: float, users: int, **other: Any) -> Finding:
    base = Finding(
        key=finding_key("slow", name),
        kind="slow",
        subject={"service": "workers", "stage": f"stage_{name}", "tool": "search" if name == "c" else ""},
        title=f"{name}: {NASTY}",
        cause="prompt_bloat",
        severity="high",
        lost_seconds=lost,
        lost_low=lost * 0.7,
        lost_high=lost * 1.4,
        share_of_e2e_p95=0.2,
        requests=users * 3,
        users=users,
        evidence=(Evidence("prompt tokens", 4100.0, "tokens", 300.0),),
        recommendation=f"Look tools up by nearest neighbour {NASTY}",
        effort="free",
        expected_saving_ms=800.0,
        verify="p95 of the stage below 50 ms",
        trace_ids=("ab" * 16,),
        window=window,
        first_seen=window.start,
        last_seen=window.end,
    )
    return replace(base, **other)


def test_the_top_is_ranked_by_users_times_time_that_can_be_won(store: Store) -> None:
    found = roadmap.build(store, "2026-W48")
    assert [item.finding.title[0] for item in found.top] == ["a", "c", "d"]
    assert [item.finding.title[:3] for item in found.then] == ["low"]
    assert [item.rank for item in (*found.top, *found.then)] == [1, 2, 3, 4]
    assert (found.requests, found.notes) == (2000, ())


def test_last_weeks_items_are_measured_a_request(store: Store) -> None:
    before = {item.item.finding.title[0]: item for item in roadmap.build(store, "2026-W48").before}
    assert {name: item.verdict for name, item in before.items()} == {"a": "better", "b": "better", "c": "worse"}
    assert before["a"].text == "4000.00 → 1500.00 s lost per 1,000 requests (-62%)"
    assert before["b"].text == "gone: not found this week"


def test_a_past_week_reads_the_same_for_ever(store: Store) -> None:
    first = {form: roadmap.render(roadmap.build(store, "2026-W47"), form) for form in roadmap.FORMATS}
    later = Window(W48.start, W48.start + timedelta(days=8))
    _save(store, later.end, later, [found("z", later, 9e9, 9000)])
    assert {form: roadmap.render(roadmap.build(store, "2026-W47"), form) for form in roadmap.FORMATS} == first
    assert "z:" not in roadmap.render(roadmap.build(store, "2026-W48"))


def test_overlapping_windows_count_once_and_others_add_up(store: Store) -> None:
    week = roadmap.week_window("2026-W40")
    hours = [Window(week.start + timedelta(hours=n), week.start + timedelta(hours=n + 1)) for n in (0, 1)]
    for window in hours:
        _save(store, week.end, window, [found("h", window, 10, 5)])
    assert roadmap.build(store, "2026-W40").top[0].lost_seconds == 20
    whole = Window(week.start, week.start + timedelta(hours=3))
    _save(store, week.end, whole, [found("h", whole, 33, 5)])
    assert roadmap.build(store, "2026-W40").top[0].lost_seconds == 33


def test_one_change_is_one_item(store: Store) -> None:
    week = roadmap.week_window("2026-W41")
    same = {"service": "workers", "stage": "generate"}
    _save(
        store,
        week.end,
        week,
        [
            found("slow one", week, 100, 5, subject=same, cause="kv_cache_pressure"),
            found(
                "failing one",
                week,
                10,
                7,
                subject={**same, "cluster": "fc-1"},
                cause="kv_cache_pressure",
                kind="failure",
            ),
            found("odd", week, 5, 1, subject=same, cause="unknown"),
            found("odder", week, 5, 1, subject=same, cause="unknown"),
        ],
    )
    built = roadmap.build(store, "2026-W41")
    assert len(built.top) == 3
    assert built.top[0].users == 7
    assert built.top[0].also[0].startswith("failing one")


def test_a_week_without_analysis_says_so(store: Store) -> None:
    empty = roadmap.build(store, "2025-W01")
    assert "stagescope analyze" in empty.notes[0]
    for form in roadmap.FORMATS:
        assert "2025-W01" in roadmap.render(empty, form)


def test_the_figures_speak_of_the_time_that_was_judged(store: Store) -> None:
    """On a Monday the last seven days lie in the week before; the head must not count Monday alone."""
    week = roadmap.week_window("2026-W30")
    monday = week.start + timedelta(hours=9)
    judged = Window(monday - timedelta(days=7), monday)
    traffic(store, judged, 700)
    facts = (Evidence("own_time_p50_ms", 789.0, "ms", 790.0), Evidence("cpu_ms_p50", 700.0, "ms", 20.0))
    _save(store, monday, judged, [found("m", judged, 100, 5, evidence=facts)])
    row = {"RunAt": monday, "WindowFrom": judged.start, "WindowTo": judged.end, "Analyzer": "slow", "RowsRead": 9}
    store.insert("analyzer_runs", pd.DataFrame([row]))
    built = roadmap.build(store, "2026-W30")
    assert (built.requests, built.judged) == (700, judged)
    assert "700 requests in the 7 days up to Mon 20 Jul 09:00 UTC" in roadmap.render(built)
    assert "Measured:** median CPU time of a run: 700 ms (in order: 20 ms)\n" in roadmap.render(built), (
        "what is in order proves nothing"
    )


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (Evidence("repeated_prompt_tokens_p50", 3820.0, "tokens", 744.0),
         "median prompt text that is the same on every call: 3,820 tokens (in order: 744 tokens)"),
        (Evidence("own_time_p95_ms", 877.4, "ms"), "p95 of own time of a run: 877 ms"),
        (Evidence("slower_when sm", 92.1, "%", 0.0), "slower while SM activity is high, for the same work: 92.1 % (in order: 0 %)"),
        (Evidence("repeated_share_of_prompt", 0.953, "ratio"), "share of the prompt that is the same on every call: 95.3 %"),
        (Evidence("set apart by tool", "search", "100% of these", "19%"), "set apart by tool: search 100% of these (usually: 19%)"),
        (Evidence("queue_wait_ms_p50", 2.25, "ms"), "median queue wait: 2.25 ms"),
    ],
)  # fmt: skip
def test_measured_values_read_as_plain_words(evidence: Evidence, words: str) -> None:
    assert evidence_words.fact(evidence) == words


def test_weeks_are_iso_weeks() -> None:
    assert roadmap.week_of(datetime(2026, 11, 30, tzinfo=UTC)) == "2026-W49"
    assert roadmap.week_of(datetime(2027, 1, 1, tzinfo=UTC)) == "2026-W53"
    assert roadmap.week_window("2026-W53").start == datetime(2026, 12, 28, tzinfo=UTC)
    for wrong in ("2026-48", "2026-W60", "W48", "", "2026-W48x"):
        with pytest.raises(BadSetting, match="week"):
            roadmap.week_window(wrong)


def test_json_holds_what_the_page_holds(store: Store) -> None:
    body = json.loads(roadmap.render(roadmap.build(store, "2026-W48"), "json"))
    assert [item["rank"] for item in body["top"]] == [1, 2, 3]
    assert {"change", "owner", "effort", "verify", "lost_low", "users"} <= set(body["top"][0])
    assert len(body["last_week"]) == 3


def test_text_from_outside_cannot_break_out(store: Store) -> None:
    built = roadmap.build(store, "2026-W48")
    page = roadmap.render(built, "html")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"(src|href)=", page)
    tables = [line for line in roadmap.render(built, "md").splitlines() if line.startswith("| ") and "low" in line]
    assert tables
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 8 for line in tables)


def test_owners_by_the_first_rule_that_matches(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "owners.toml"
    path.write_text('[[owner]]\nteam = "tools"\ntool = "sea*"\n[[owner]]\nteam = "all"\nservice = "*"\n')
    built = roadmap.build(store, "2026-W48", owners=roadmap_owners.load(path))
    assert [item.owner for item in built.top] == ["all", "tools", "all"]
    assert NOBODY.of(built.top[0].finding) == ""
    for wrong in (
        '[[owner]]\nteem = "x"\n',
        "[[owner]\n",
        '[[owner]]\nstage = "x"\n',
        '[[owner]]\nteam = "x"\nstage = 3\n',
    ):
        path.write_text(wrong)
        with pytest.raises(BadSetting, match="STAGESCOPE_OWNERS"):
            roadmap_owners.load(path)
    with pytest.raises(BadSetting, match="STAGESCOPE_OWNERS"):
        roadmap_owners.load(tmp_path / "missing.toml")


def test_the_example_of_owners_loads() -> None:
    assert len(roadmap_owners.load(Path(__file__).parents[2] / "docs" / "owners.toml").rules) > 3
