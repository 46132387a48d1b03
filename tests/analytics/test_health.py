"""Danger that lasts is a finding; a spike, a hole in the samples, or a healthy host is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from analytics import health
from analytics.findings import Window

START = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
DAY = Window(START, START + timedelta(hours=1))
TICKS = np.arange(0, 3600, 10.0)


def data(sm: Callable[[float], float] | float = 0.4, queue: Callable[[float], float] | float = 0.5) -> health.Data:
    def values(source: Callable[[float], float] | float) -> list[float]:
        return [source(at) if callable(source) else source for at in TICKS]

    ts = TICKS + START.timestamp()
    gpu = pd.DataFrame({"ts": ts, "host": "a", "gpu": "0", "sm": values(sm), "dram": 0.3, "gpu_mem": 0.6, "pcie": 0.1})
    host = pd.DataFrame({"ts": ts, "host": "a", "cpu": 0.3, "disk_queue": values(queue), "net_rtt": 0.5})
    return health.Data(DAY, gpu, host, 2 * len(ts))


def test_a_healthy_host_has_no_finding() -> None:
    assert health.find(data()) == []


def test_a_spike_is_no_sickness() -> None:
    assert health.find(data(sm=lambda at: 0.99 if at % 300 < 20 else 0.5)) == []


def test_danger_that_lasts_is_named_with_its_numbers() -> None:
    (finding,) = health.find(data(sm=lambda at: 0.97 if 600 <= at < 1200 else 0.5))
    assert finding.kind == "health"
    assert finding.subject["dimension"] == "host=a"
    facts = {item.name: item for item in finding.evidence}
    assert facts["longest_stretch_s"].value == 590.0
    assert facts["sm_max"].value == pytest.approx(0.97)
    assert finding.lost_seconds == 600.0
    assert finding.first_seen == START + timedelta(seconds=600)


def test_a_hole_in_the_samples_breaks_the_stretch() -> None:
    ts = np.array([0.0, 10.0, 500.0, 510.0])
    assert health.longest_s(ts, np.array([True] * 4)) == 10.0


def test_keys_do_not_depend_on_when_or_how_much() -> None:
    early = health.find(data(queue=lambda at: 20.0 if at < 600 else 0.5))
    late = health.find(data(queue=lambda at: 35.0 if at > 1800 else 0.5))
    assert [item.key for item in early] == [item.key for item in late]


def test_unknown_values_are_not_zero_and_not_danger() -> None:
    blank = data()
    gone = replace(blank, gpu=blank.gpu.assign(sm=np.nan, gpu_mem=np.nan), host=pd.DataFrame())
    assert health.find(gone) == []
