"""Days that are over are answered from one row a day, and only while their hours are as they were."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from analytics import fresh_hours
from analytics.dimensions import p99
from analytics.findings import Window
from analytics.rollups import roll
from ingest.store import Store

START = datetime(2026, 11, 1, 18, 0, tzinfo=UTC)
HOURS = 60  # 6 hours, two whole days, 6 hours
WEEK = Window(START, START + timedelta(hours=HOURS))
TABLES = ("stage_runs", "stage_hours", "stage_rollups", "stage_days", "stage_rollups_days")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("days") / "store")) as store:
        yield store


@pytest.fixture
def store(opened: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("analytics.dimensions.EXACT_RUNS", -1)
    for table in TABLES:
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def fill(store: Store, hours: range, each_ms: float, revision: int) -> None:
    """Ten runs an hour, in two regions."""
    hour = np.repeat(np.array(hours), 10)
    number = np.arange(len(hour))
    frame = pd.DataFrame(
        {
            "Timestamp": pd.Timestamp(START) + pd.to_timedelta(hour, "h") + pd.to_timedelta(number % 10, "min"),
            "TraceId": [f"{revision}-{i}" for i in number],
            "SpanId": [f"s{i}" for i in number],
            "ServiceName": "api",
            "Stage": "chat",
            "Region": np.where(number % 2, "eu", "us"),
            "Duration": np.full(len(hour), int(each_ms * 1e6), "uint64"),
            "Failed": np.zeros(len(hour), "uint8"),
            "Revision": np.full(len(hour), revision, "uint64"),
        }
    )
    store.insert("stage_runs", frame)
    dirty = pd.DataFrame({"Hour": [int((START + timedelta(hours=h)).timestamp()) for h in hours], "Dirty": revision})
    store.insert("stage_hours", dirty.astype({"Hour": "uint32", "Dirty": "uint64"}))


def answer(store: Store, window: Window = WEEK) -> dict[str, tuple[int, int]]:
    found = p99(store, ["region"], window=window)
    return {row.region: (row.count, round(row.p99_ms)) for row in found.itertuples(index=False)}


def days_in(store: Store, window: Window = WEEK) -> int:
    low, high = (int(moment.timestamp()) * 10**9 for moment in (window.start, window.end))
    return sum(bool(block.revision) for block in fresh_hours.fresh(store, low, high))


def forget_hours(store: Store, day: int) -> None:
    store.command(
        f"ALTER TABLE stage_rollups DELETE WHERE toDayOfMonth(Hour, 'UTC') = {day} SETTINGS mutations_sync = 1"
    )


def test_whole_days_come_from_the_days_and_the_rest_from_hours(store: Store) -> None:
    fill(store, range(HOURS), 2, 1)
    assert roll(store) == HOURS
    assert days_in(store) == 2
    store.command("TRUNCATE TABLE stage_runs")
    assert answer(store) == {"eu": (300, 2), "us": (300, 2)}
    forget_hours(store, 2)
    assert answer(store) == {"eu": (300, 2), "us": (300, 2)}
    forget_hours(store, 3)
    forget_hours(store, 4)
    assert answer(store) == {"eu": (270, 2), "us": (270, 2)}, "the last six hours are no whole day"


def test_a_late_run_makes_its_day_count_by_hours_until_it_is_rolled_again(store: Store) -> None:
    fill(store, range(HOURS), 2, 1)
    roll(store)
    fill(store, range(8, 9), 50, 2)
    assert days_in(store) == 1
    assert answer(store) == {"eu": (305, 50), "us": (305, 50)}
    assert roll(store) == 1
    assert days_in(store) == 2
    store.command("TRUNCATE TABLE stage_runs")
    assert answer(store) == {"eu": (305, 50), "us": (305, 50)}


def test_a_new_hour_in_a_day_makes_the_day_stale(store: Store) -> None:
    fill(store, range(6, 20), 2, 1)
    roll(store)
    assert days_in(store) == 1
    fill(store, range(22, 23), 2, 2)
    assert days_in(store) == 0
    assert sum(count for count, _ in answer(store).values()) == 150
    roll(store)
    assert days_in(store) == 1
    assert sum(count for count, _ in answer(store).values()) == 150


@pytest.mark.parametrize(("first_h", "hours"), [(0.5, 40), (7, 20), (6, 24), (6, 48), (5.9, 24.2), (0, 60), (30, 24)])
def test_windows_that_cut_days_count_every_run_once(store: Store, first_h: float, hours: float) -> None:
    fill(store, range(HOURS), 2, 1)
    roll(store)
    start = START + timedelta(hours=first_h)
    window = Window(start, start + timedelta(hours=hours))
    inside = store.value(
        "SELECT count() FROM stage_runs WHERE Timestamp >= toDateTime64({low:Float64}, 9) AND Timestamp < toDateTime64({high:Float64}, 9)",
        low=window.start.timestamp(),
        high=window.end.timestamp(),
    )
    assert sum(count for count, _ in answer(store, window).values()) == inside > 0


def test_a_day_that_is_not_over_stays_with_its_hours(store: Store) -> None:
    fill(store, range(HOURS), 2, 1)
    assert roll(store, before=START + timedelta(hours=40)) == 40
    assert days_in(store) == 1


def test_an_hour_is_rolled_alone(store: Store) -> None:
    """Hours between two stale ones keep their rollup: a query meanwhile finds them."""
    fill(store, range(6), 2, 1)
    roll(store)
    fill(store, range(0, 6, 5), 4, 2)
    roll(store)
    kept = store.read("SELECT Hour, Rolled FROM stage_hours FINAL ORDER BY Hour")["Rolled"].tolist()
    assert kept == [2, 1, 1, 1, 1, 2]
    assert answer(store, Window(START, START + timedelta(hours=6))) == {"eu": (40, 4), "us": (40, 4)}
