"""Two sides compared: what differs is found, mix and work are matched, little data stays undecided."""

import numpy as np
import pandas as pd
import pytest

from analytics.compare import BETTER, SAME, UNSURE, WORSE, judge


def side(durations_ms: np.ndarray, seed: int = 1, **columns: object) -> pd.DataFrame:
    n = len(durations_ms)
    frame = pd.DataFrame(
        {
            "at_ns": (np.arange(n) * 3_600_000_000_000 // max(n, 1)).astype("int64"),
            "duration_ns": durations_ms * 1e6,
            "failed": np.zeros(n, int),
            **dict.fromkeys(("stage", "region", "device", "user_tier", "version"), ""),
            **dict.fromkeys(("input_tokens", "output_tokens", "payload_bytes", "items"), np.nan),
        }
    )
    return frame.assign(**columns)


def draw(seed: int, n: int = 3000, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(5, 0.3, n) * scale


@pytest.mark.parametrize(("scale", "verdict"), [(1.3, WORSE), (0.7, BETTER), (1.0, SAME)])
def test_a_shift_is_found_and_none_is_not(scale: float, verdict: str) -> None:
    found = judge(side(draw(1, 12_000)), side(draw(2, 12_000, scale)))
    assert found.verdict == verdict, found.reason
    assert found.change["p95_ms"].low <= found.change["p95_ms"].value <= found.change["p95_ms"].high


def test_a_changed_mix_of_regions_is_no_change() -> None:
    rng = np.random.default_rng(3)
    far_a, far_b = rng.random(8000) < 0.2, rng.random(8000) < 0.6
    a = side(draw(4, 8000) * np.where(far_a, 3, 1), region=np.where(far_a, "far", "near"))
    b = side(draw(5, 8000) * np.where(far_b, 3, 1), region=np.where(far_b, "far", "near"))
    assert judge(a.assign(region=""), b.assign(region="")).verdict == WORSE
    assert judge(a, b).verdict in (SAME, UNSURE)


def test_heavier_work_is_no_regression() -> None:
    rng = np.random.default_rng(6)
    light, heavy = (
        rng.choice([100.0, 1000.0, 4000.0], 6000, p=[0.6, 0.3, 0.1]),
        rng.choice([100.0, 1000.0, 4000.0], 6000, p=[0.1, 0.3, 0.6]),
    )
    a, b = (side(draw(int(w.sum()), 6000) * (1 + w / 1000), input_tokens=w) for w in (light, heavy))
    assert judge(a, b).verdict in (SAME, UNSURE)


def test_errors_alone_make_it_worse() -> None:
    b = side(draw(2)).assign(failed=(np.arange(3000) % 20 == 0).astype(int))
    found = judge(side(draw(1)), b)
    assert found.verdict == WORSE
    assert found.errors.low > 0


def test_little_or_unmatched_data_is_not_judged() -> None:
    assert judge(side(draw(1, 40)), side(draw(2, 5000, 3))).verdict == UNSURE
    apart = judge(side(draw(1), region="eu"), side(draw(2), region="us"))
    assert (apart.verdict, apart.matched) == (UNSURE, (0, 0))
    assert judge(side(draw(1, 0)), side(draw(2, 0))).verdict == UNSURE


def test_the_same_data_gives_the_same_answer_in_any_order() -> None:
    a, b = side(draw(1)), side(draw(2, scale=1.02))
    mixed = b.sample(frac=1, random_state=1).reset_index(drop=True)
    assert judge(a, b).change["p50_ms"].value == judge(a, mixed).change["p50_ms"].value


def test_equal_sides_are_the_same_and_a_tenth_slower_is_worse() -> None:
    equal = [judge(side(draw(seed, 4000)), side(draw(seed + 500, 4000))).verdict for seed in range(24)]
    assert equal.count(SAME) >= 23
    slower = [judge(side(draw(seed, 4000)), side(draw(seed + 500, 4000, 1.1))).verdict for seed in range(5)]
    assert slower == [WORSE] * 5


def test_quality_is_told_where_both_sides_report_it() -> None:
    a = side(draw(1), retries=0.0, degraded=np.nan)
    b = side(draw(2), retries=(np.arange(3000) % 10 == 0).astype(float), degraded=np.nan)
    found = judge(a, b)
    assert set(found.quality) == {"retries"}
    assert found.quality["retries"].low > 0.05


def test_what_the_change_itself_moves_is_not_matched_on() -> None:
    a, b = side(draw(1), input_tokens=4000.0), side(draw(2, scale=0.5), input_tokens=500.0)
    assert judge(a, b).verdict == UNSURE
    found = judge(a, b, ignore=("input_tokens",))
    assert found.verdict == BETTER
    assert found.mean is not None
    assert found.mean.low < -0.5 * np.exp(5.045) < found.mean.high


def mixed(parts: dict[str, tuple[int, int]], seed: int) -> pd.DataFrame:
    """`parts`: by region, runs and how many of them failed."""
    frames = []
    for number, (region, (runs, failed)) in enumerate(parts.items()):
        frame = side(draw(seed + number, runs), region=region)
        frame["failed"] = (np.arange(runs) < failed).astype(int)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def test_errors_are_compared_on_the_same_mix() -> None:
    only_b = judge(mixed({"eu": (1000, 20)}, 1), mixed({"eu": (1000, 20), "us": (300, 60)}, 5))
    assert only_b.verdict != WORSE, only_b.reason
    moved = judge(mixed({"eu": (1000, 10), "us": (1000, 200)}, 1), mixed({"eu": (1900, 19), "us": (100, 20)}, 5))
    assert moved.verdict != BETTER, moved.reason
    assert moved.errors.value == pytest.approx(0, abs=1e-9)
    risen = judge(mixed({"eu": (1000, 10)}, 1), mixed({"eu": (1000, 90)}, 5))
    assert risen.verdict == WORSE
    assert "errors rise" in risen.reason


def test_failed_runs_that_declare_no_work_count_as_errors() -> None:
    a, b = mixed({"eu": (1000, 5)}, 1), mixed({"eu": (1000, 90)}, 5)
    for one in (a, b):
        one["output_tokens"] = np.where(one["failed"] == 1, np.nan, 100.0)
    assert judge(a, b).verdict == WORSE
