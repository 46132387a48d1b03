"""Intervals cover what they say; many tests at once do not cry wolf."""

import numpy as np

from analytics.stats import (
    Sample,
    bootstrap_quantiles,
    false_discovery,
    rate_difference,
    rate_ratios,
    weighted_quantile,
    wilson,
)


def test_rate_ratio_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        inside, outside = rng.binomial(400, 0.1), rng.binomial(4000, 0.05)
        found = rate_ratios(np.array([inside]), np.array([400]), inside + outside, 4400)
        covered += bool(found.low[0] <= 2.0 <= found.high[0])
    assert covered / 400 > 0.92


def test_no_difference_gives_few_discoveries() -> None:
    rng = np.random.default_rng(2)
    hits = rng.binomial(200, 0.1, 300)
    found = rate_ratios(hits, np.full(300, 200), 6000, 60_000)
    assert (false_discovery(found.p_value) < 0.05).sum() == 0
    assert len(false_discovery(np.zeros(0))) == 0


def test_weights_act_like_repeated_values() -> None:
    values, weights = np.array([1.0, 2.0, 5.0]), np.array([1.0, 7.0, 2.0])
    levels = np.array([0.05, 0.5, 0.95])
    repeated = np.repeat(values, weights.astype(int))
    assert (
        weighted_quantile(values, weights, levels).tolist() == weighted_quantile(repeated, np.ones(10), levels).tolist()
    )


def test_bootstrap_of_quantiles_covers_and_repeats() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(60):
        values = rng.exponential(1, 500)
        sample = Sample(values, np.ones(500), np.arange(500) // 10)
        _, draws = bootstrap_quantiles(sample, np.array([0.9]), rounds=200)
        low, high = np.quantile(draws[:, 0], [0.025, 0.975])
        covered += bool(low <= np.log(10) <= high)
    assert covered / 60 > 0.85
    again = bootstrap_quantiles(sample, np.array([0.9]), rounds=200)[1]
    assert np.array_equal(draws, again)


def test_rate_differences() -> None:
    found = rate_difference(10, 1000, 50, 1000)
    assert found.low > 0.02
    assert found.high < 0.06
    assert rate_difference(0, 50, 0, 50).low < 0 < rate_difference(0, 50, 0, 50).high
    assert wilson(0, 0)[1:] == (0.0, 1.0)
