"""Healthy hosts differ by some per cent: one is named when it is surely a fifth slower than its like."""

import math

import numpy as np
import pytest

from analytics.slow_features import Feature
from analytics.slow_select import Effect, select

BLOCKS, RUNS = 30, 60


def chosen(times_slower: float, swing: float) -> list[Effect]:
    """Effects found when every second run is on the slow host, whose log effect swings by `swing` from block to block."""
    block = np.repeat(np.arange(BLOCKS), RUNS)
    slow = np.arange(BLOCKS * RUNS) % 2 == 0
    noise = np.random.default_rng(4).normal(0, 0.05, BLOCKS * RUNS)
    effect = math.log(times_slower) + swing * np.where(block % 2, 1.0, -1.0)
    host = Feature("host_slow", "host", "host=b", slow.astype(float))
    return select(noise + slow * effect, block, [host])


@pytest.mark.parametrize("times_slower", [1.33, 1.5, 2.0])
def test_a_host_that_is_steadily_slower_is_named(times_slower: float) -> None:
    (found,) = chosen(times_slower, 0.02)
    assert found.feature.name == "host=b"
    assert math.exp(found.log_effect) == pytest.approx(times_slower, rel=0.1)


def test_a_host_that_may_be_no_more_than_a_fifth_slower_is_not_named() -> None:
    """1.33 times slower on average, 4 standard errors away from nothing, but less than 2 away from 1.2 times."""
    assert "host" not in {found.feature.group for found in chosen(1.33, 0.38)}


def test_a_host_that_is_surely_a_little_slower_is_not_named() -> None:
    assert chosen(1.15, 0.02) == []
