"""Findings are kept, carried over, resolved and reopened; a window says what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from analytics import health, run
from analytics.findings import Analyzer, Evidence, Finding, Window, finding_key
from ingest.errors import BadSetting
from ingest.store import Store

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Looked(NamedTuple):
    rows_read: int
    note: str


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("run"))) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in ("stage_runs", "findings", "analyzer_runs", "gpu_samples", "host_samples"):
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def week(number: int) -> Window:
    return Window(NOON + timedelta(weeks=number), NOON + timedelta(weeks=number + 1))


def finding(window: Window, stage: str = "route", lost: float = 10.0, severity: str = "high") -> Finding:
    subject = {"service": "edge", "stage": stage, "tier": "", "model": "", "tool": "", "dimension": ""}
    return Finding(
        finding_key("slow", "edge", stage, "retry"), "slow", subject, f"{stage} retries", "retry", severity, lost, lost / 2, lost * 2,
        0.1, 5, 3, (Evidence("retries", 2.0, "", 0.0),), "stop", "free", 4.0, "look", ("t1",), window, window.start, window.end,
    )  # fmt: skip


def analyzer(found: Sequence[Finding], rows: int = 500) -> Analyzer:
    return Analyzer("slow", lambda store, window: Looked(rows, "all seen"), lambda data: found)


def stage_runs(store: Store, window: Window, stage: str = "route", count: int = 50) -> None:
    times = [window.start + timedelta(minutes=i) for i in range(count)]
    frame = pd.DataFrame({"Timestamp": times, "TraceId": [f"{stage}{window.start:%d}{i}" for i in range(count)]})
    store.insert("stage_runs", frame.assign(SpanId="s", ServiceName="edge", Stage=stage))


def test_findings_are_kept_worst_first_and_runs_are_noted(store: Store) -> None:
    found = [finding(week(0), "a", 5.0), finding(week(0), "b", 9.0), finding(week(0), "c", 1.0, "critical")]
    assert [f.subject["stage"] for f in run.run(store, week(0), [analyzer(found)])] == ["c", "b", "a"]
    assert [f.subject["stage"] for f in run.latest(store, "slow")] == ["c", "b", "a"]
    assert run.latest(store, "health") == []
    row = store.read("SELECT Analyzer, Findings, RowsRead, Note FROM analyzer_runs").iloc[0]
    assert row.tolist() == ["slow", 3, 500, "all seen"]


def test_no_findings_differs_from_never_looked(store: Store) -> None:
    assert store.value("SELECT count() FROM analyzer_runs") == 0
    run.run(store, week(0), [analyzer([])])
    assert store.value("SELECT count() FROM analyzer_runs") == 1


def test_first_seen_is_carried_over(store: Store) -> None:
    run.run(store, week(0), [analyzer([finding(week(0))])], now=NOON)
    (again,) = run.run(store, week(1), [analyzer([finding(week(1))])], now=NOON + timedelta(weeks=1))
    assert again.first_seen == week(0).start
    assert again.last_seen == week(1).end


def test_what_is_gone_is_resolved_and_may_come_back(store: Store) -> None:
    run.run(store, week(0), [analyzer([finding(week(0))])], now=NOON)
    stage_runs(store, week(1))
    run.run(store, week(1), [analyzer([])], now=NOON + timedelta(weeks=1))
    assert run.latest(store) == []
    (gone,) = run.latest(store, resolved=True)
    assert (gone.state, gone.window) == ("resolved", week(1))
    (back,) = run.run(store, week(2), [analyzer([finding(week(2))])], now=NOON + timedelta(weeks=2))
    assert back.state == "reopened"
    assert back.first_seen == week(0).start


@pytest.mark.parametrize("case", ["no traffic", "nothing read", "earlier window", "other analyzer"])
def test_what_was_not_looked_at_stays_open(store: Store, case: str) -> None:
    run.run(store, week(1), [analyzer([finding(week(1))])], now=NOON)
    window = week(0) if case == "earlier window" else week(2)
    if case != "no traffic":
        stage_runs(store, window)
    other = Analyzer("health", lambda store, window: Looked(9, ""), lambda data: [])
    rerun = other if case == "other analyzer" else analyzer([], rows=0 if case == "nothing read" else 500)
    run.run(store, window, [rerun], now=NOON + timedelta(weeks=1))
    assert [f.state for f in run.latest(store)] == ["open"]


def test_all_analyzers_run_on_an_empty_store(store: Store) -> None:
    assert run.run(store, week(0)) == []
    assert store.value("SELECT count() FROM analyzer_runs") == len(run.ANALYZERS)
    assert run.covering(store) is None


def test_windows() -> None:
    assert run.last("90m", NOON) == Window(NOON - timedelta(minutes=90), NOON)
    assert run.last("7d", NOON).seconds == 7 * 86_400
    assert run.between("2026-11-30T11:00:00Z", now=NOON) == Window(NOON - timedelta(hours=1), NOON)
    assert run.between("2026-11-30T10:00:00", "2026-11-30T12:00:00+01:00").seconds == 3_600


@pytest.mark.parametrize("text", ["", "soon", "-3h", "0d", "7 parsecs"])
def test_a_length_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        run.last(text)


def test_a_window_must_run_forwards() -> None:
    with pytest.raises(BadSetting):
        run.between("2026-11-30T12:00:00Z", "2026-11-30T11:00:00Z")
    with pytest.raises(BadSetting):
        run.between("yesterday")


def test_covering_holds_every_run(store: Store) -> None:
    stage_runs(store, week(0))
    window = run.covering(store)
    assert window is not None
    assert window.start == week(0).start
    assert week(0).start + timedelta(minutes=49) < window.end


@pytest.mark.filterwarnings("error")
def test_covering_takes_times_to_the_nanosecond(store: Store) -> None:
    store.insert("stage_runs", pd.DataFrame({"Timestamp": [pd.Timestamp("2026-11-30T12:00:00.123456789")]}))
    window = run.covering(store)
    assert window is not None
    assert window.start == NOON + timedelta(microseconds=123456)


def test_samples_of_a_store_are_read(store: Store) -> None:
    times = [week(0).start + timedelta(seconds=10 * i) for i in range(60)]
    store.insert(
        "gpu_samples",
        pd.DataFrame(
            {"Timestamp": times, "Host": "b", "Gpu": "0", "Model": "T4", "SmActive": np.full(60, 0.96, "float32")}
        ),
    )
    (found,) = run.run(store, week(0), [health.ANALYZER])
    assert found.subject["dimension"] == "host=b"
    assert store.value("SELECT Note FROM analyzer_runs") == "no host samples"
