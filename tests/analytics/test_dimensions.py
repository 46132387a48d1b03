"""Percentiles by dimension: exact when small, within 1 % when large, the same from rollups and from runs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from analytics import overview
from analytics.dimensions import p99
from analytics.findings import Window
from analytics.rollups import roll
from ingest.errors import BadSetting
from ingest.store import Store

START = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=6))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("dimensions") / "store")) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in ("stage_runs", "stage_hours", "stage_rollups", "stage_days", "stage_rollups_days", "otel_traces"):
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def fill(store: Store, durations_ns: np.ndarray, revision: int = 1, **columns: object) -> pd.DataFrame:
    n = len(durations_ns)
    frame = pd.DataFrame(
        {
            "Timestamp": pd.Timestamp(START) + pd.to_timedelta(np.arange(n) * (5.9 * 3600 / n), "s"),
            "TraceId": [f"{revision}-{i}" for i in range(n)],
            "SpanId": [f"s{i}" for i in range(n)],
            "ServiceName": "api",
            "Stage": "chat",
            "Region": np.where(np.arange(n) % 3 == 0, "eu", "us"),
            "Duration": durations_ns.astype("uint64"),
            "Failed": np.zeros(n, "uint8"),
            "Revision": np.full(n, revision, "uint64"),
        }
    ).assign(**columns)
    store.insert("stage_runs", frame)
    hours = sorted({moment.floor("h").tz_localize(None) for moment in frame["Timestamp"]})
    store.insert(
        "stage_hours",
        pd.DataFrame({"Hour": [int(h.timestamp()) for h in hours], "Dirty": revision}).astype(
            {"Hour": "uint32", "Dirty": "uint64"}
        ),
    )
    return frame


def shapes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    n = 40_000
    return {
        "bimodal": np.where(rng.random(n) < 0.9, rng.normal(50e6, 5e6, n), rng.normal(5e9, 3e8, n)).clip(1e6),
        "constant": np.full(n, 123_456_789.0),
        "heavy": 1e6 * (1 + rng.pareto(1.2, n)).clip(max=1e9),
        "lognormal": rng.lognormal(18, 0.6, n),
        "in order": np.sort(rng.lognormal(18, 0.6, n)),  # the worst order for a sketch, and for hours that are merged
    }


@pytest.mark.parametrize("shape", list(shapes()))
@pytest.mark.parametrize("rolled", [True, False])
def test_large_inputs_are_within_one_per_cent(
    store: Store, shape: str, rolled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analytics.dimensions.EXACT_RUNS", -1)
    durations = shapes()[shape]
    fill(store, durations[:20_000], 1)
    fill(store, durations[20_000:], 2)
    if rolled:
        assert roll(store) == 6
        store.command("ALTER TABLE stage_runs DELETE WHERE Stage = 'chat' SETTINGS mutations_sync = 1")
    found = p99(store, ["region"], window=WINDOW).set_index("region")
    assert found["count"].sum() == 40_000
    index = np.arange(20_000)
    part = np.concatenate([durations[:20_000][index % 3 == 0], durations[20_000:][index % 3 == 0]])
    for name, level in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        assert found.loc["eu", name] == pytest.approx(np.quantile(part.astype("uint64"), level) / 1e6, rel=0.01), name


def test_small_inputs_are_exact_and_thin(store: Store) -> None:
    durations = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]) * 1e6
    fill(store, durations, Failed=np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "uint8"))
    row = p99(store, ["stage"], window=WINDOW).iloc[0]
    good = np.delete(durations, 5) / 1e6
    assert (row["count"], row["errors"], bool(row["thin"])) == (10, 1, True)
    assert row["p99_ms"] == pytest.approx(np.quantile(good, 0.99), rel=1e-9)
    assert row["p50_ms"] == np.quantile(good, 0.5)


def test_all_failed_gives_counts_and_no_percentile(store: Store) -> None:
    fill(store, np.full(10, 1e6), Failed=np.ones(10, "uint8"))
    row = p99(store, ["stage"], window=WINDOW).iloc[0]
    assert (row["count"], row["errors"]) == (10, 10)
    assert np.isnan(row["p99_ms"])


def test_a_stretch_in_which_all_failed_has_no_percentile(store: Store) -> None:
    failed = (np.arange(60) < 21).astype("uint8")  # the first two hours
    fill(store, np.full(60, 2e9), Failed=failed, SelfTime=np.full(60, 1e9), Stage=np.where(failed, "bad", "good"))
    series = overview.over_time(store, WINDOW, buckets=6)
    assert (series["failed"] == series["requests"]).tolist() == [True] * 2 + [False] * 4
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        assert series[name].isna().tolist() == [True] * 2 + [False] * 4
    shares = overview.stage_shares(store, WINDOW).set_index("stage")["p95_ms"]
    assert np.isnan(shares["bad"])
    assert shares["good"] == 1000


def test_a_newer_run_makes_its_hour_count_from_the_runs_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytics.dimensions.EXACT_RUNS", -1)
    fill(store, np.full(600, 1e6), 1)
    roll(store)
    fill(store, np.full(600, 8e6), 2)
    assert p99(store, ["stage"], window=WINDOW)["count"].tolist() == [1200]
    assert roll(store) == 6
    assert roll(store) == 0
    found = p99(store, ["stage", "region"], window=WINDOW)
    assert found["count"].tolist() == [800, 400]
    assert found["p99_ms"].tolist() == pytest.approx([8, 8], rel=0.01)


def test_windows_that_cut_hours_count_exactly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytics.dimensions.EXACT_RUNS", -1)
    frame = fill(store, np.full(3000, 1e6))
    roll(store)
    window = Window(START + timedelta(minutes=17), START + timedelta(hours=3, minutes=41))
    inside = ((frame["Timestamp"] >= window.start) & (frame["Timestamp"] < window.end)).sum()
    assert p99(store, ["region"], window=window)["count"].sum() == inside


def test_requests_unless_a_stage_or_a_dimension_of_stages_is_asked_for(store: Store) -> None:
    parents = np.where(np.arange(30) % 3 == 0, "", "s0")
    fill(store, np.full(30, 1e6), ParentSpanId=parents)
    assert p99(store, ["device"], window=WINDOW)["count"].sum() == 10
    assert p99(store, ["device"], stage="chat", window=WINDOW)["count"].sum() == 30
    assert p99(store, ["service"], window=WINDOW)["count"].sum() == 30


def test_any_attribute_is_bound_and_never_sql(store: Store) -> None:
    store.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, ServiceName, SpanAttributes, Duration, StatusCode) "
        "SELECT fromUnixTimestamp64Nano(toInt64({t:Int64})), toString(number), toString(number), 'x', 'api', "
        "map('plan', ['a', 'b', ''][number % 3 + 1]), (number + 1) * 1000000, if(number = 0, 'Error', 'Ok') FROM numbers(30)",
        t=int(START.timestamp() * 1e9),
    )
    found = p99(store, ["plan"], window=WINDOW).set_index("plan")
    assert found["count"].to_dict() == {"a": 10, "b": 10}
    assert found.loc["a", "errors"] == 1
    assert not len(p99(store, ["x') OR 1=1 --"], window=WINDOW))


@pytest.mark.parametrize("by", [[], [""], ["a", "b", "c", "d", "e"], ["count"]])
def test_what_cannot_be_a_dimension_is_refused(store: Store, by: list[str]) -> None:
    with pytest.raises(BadSetting):
        p99(store, by, window=WINDOW)


def test_a_run_at_the_beginning_of_time_is_rolled_up(store: Store) -> None:
    first = pd.DataFrame({"Timestamp": [pd.Timestamp(0)], "Stage": ["parse"], "SpanId": ["1"], "TraceId": ["a"]})
    store.insert("stage_runs", first)
    store.insert("stage_hours", pd.DataFrame({"Hour": pd.to_datetime([0]), "Dirty": pd.array([1], dtype="uint64")}))
    assert roll(store) == 1
    assert roll(store) == 0
    assert store.value("SELECT count() > 0 FROM stage_rollups WHERE Hour = toDateTime(0)")
