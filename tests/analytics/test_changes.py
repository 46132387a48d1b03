"""Change points: a lasting step is found where it is, noise that hangs together is not, small steps are left alone."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from analytics.changes import bin_seconds, find, likeliest
from analytics.findings import Window
from analytics.run import between

BIN_S = 60
FIRST = 29_000_000


def noise(seed: int, count: int, hang: float = 0.0) -> np.ndarray:
    """Unit noise with lag-1 correlation `hang`."""
    steps = np.random.default_rng(seed).normal(0, np.sqrt(1 - hang**2), count)
    out = np.empty(count)
    level = 0.0
    for place, step in enumerate(steps):
        level = hang * level + step
        out[place] = level
    return out


def series(name: str, p50_ms: np.ndarray, failures: np.ndarray | None = None, runs: int = 200) -> pd.DataFrame:
    count = len(p50_ms)
    failed = np.zeros(count, int) if failures is None else failures
    return pd.DataFrame(
        {
            "service": "api",
            "stage": name,
            "bin": FIRST + np.arange(count),
            "runs": runs,
            "failures": failed,
            "good": runs - failed,
            "q": [[value * 1e6, value * 3e6] for value in p50_ms],
        }
    )


def steady(seed: int, hang: float = 0.3, count: int = 100) -> np.ndarray:
    return 50 * np.exp(0.1 * noise(seed, count, hang))


@pytest.mark.parametrize("hang", [0.0, 0.5])
def test_false_alarms_stay_rare(hang: float) -> None:
    p_values = np.array([likeliest(noise(seed, 100, hang)).p_value for seed in range(200)])  # type: ignore[union-attr]
    assert (p_values < 0.05).mean() < 0.08
    alarms = sum(
        bool(find(pd.concat([series(f"s{i}", steady(100 * seed + i, hang)) for i in range(10)]), BIN_S))
        for seed in range(12)
    )
    assert alarms <= 1


def test_a_lasting_step_is_found_where_it_is() -> None:
    slow = steady(1) * np.where(np.arange(100) >= 60, 1.3, 1.0)
    found = find(pd.concat([series("work", slow), *(series(f"s{i}", steady(50 + i)) for i in range(20))]), BIN_S)
    assert {(item.stage, item.measure) for item in found} == {("work", "p50_ms"), ("work", "p99_ms")}
    for item in found:
        assert abs(item.at.timestamp() / BIN_S - FIRST - 60) <= 2
        assert 1.2 < item.after / item.before < 1.4


def test_a_passing_trouble_has_two_ends() -> None:
    slow = steady(2) * np.where((np.arange(100) >= 30) & (np.arange(100) < 70), 1.5, 1.0)
    places = [
        round(item.at.timestamp() / BIN_S) - FIRST
        for item in find(series("work", slow), BIN_S)
        if item.measure == "p50_ms"
    ]
    assert sorted(places) == pytest.approx([30, 70], abs=2)


def test_errors_that_begin_are_a_change() -> None:
    rng = np.random.default_rng(3)
    failures = rng.binomial(200, np.where(np.arange(80) >= 40, 0.05, 0.005))
    found = find(series("work", steady(4, count=80), failures), BIN_S)
    assert [item.measure for item in found] == ["error_rate"]
    assert found[0].after > 0.03 > 0.01 > found[0].before


def test_small_steps_slow_drifts_and_little_data_are_none() -> None:
    small = 50 * np.exp(0.001 * noise(5, 100)) * np.where(np.arange(100) >= 50, 1.05, 1.0)
    assert find(series("work", small), BIN_S) == []
    daily = 50 * (1 + 0.5 * np.sin(np.arange(96) / 96 * 4 * np.pi)) * np.exp(0.02 * noise(6, 96))
    assert find(series("work", daily), BIN_S) == []
    assert find(series("work", steady(7, count=11)), BIN_S) == []
    assert find(series("work", steady(8), runs=3), BIN_S) == []
    assert find(series("work", steady(9)).iloc[:0], BIN_S) == []


def test_the_bin_suits_the_window() -> None:
    day = between("2026-11-01", "2026-11-02")
    assert bin_seconds(day) == 900
    assert bin_seconds(Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, 2, tzinfo=UTC))) == 60
