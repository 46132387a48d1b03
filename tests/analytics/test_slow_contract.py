"""The slow analyzer sits the exam of all analyzers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pandas as pd
import pytest

from analytics import slow
from analytics.findings import Analyzer, Finding, Window
from analytics.slow_load import Data, empty
from tests.analytics.stage_faults import apply
from tests.analytics.stage_world import START, Kind, World
from tests.contracts_analyzers import EXAM
from tests.contracts_analyzers import World as States

DAY = Window(START, START + timedelta(minutes=120))


@cache
def faulty() -> Data:
    world = World(seed=3)
    apply(world, "prompt_bloat", "route")
    apply(world, "queueing", "merge", (0.2, 0.8))
    return world.data()


def shuffled() -> Data:
    data = faulty()
    return replace(
        data, runs=data.runs.sample(frac=1.0, random_state=5), load=data.load.sample(frac=1.0, random_state=6)
    )


def doubled() -> Data:
    data = faulty()
    twin = data.runs.assign(trace=data.runs["trace"].str.replace("0003", "ffff", n=1))
    totals = data.totals.assign(runs=data.totals["runs"] * 2, critical_ms=data.totals["critical_ms"] * 2)
    load = data.load.assign(starts=data.load["starts"] * 2)
    return replace(
        data, runs=pd.concat([data.runs, twin], ignore_index=True), totals=totals, traces=data.traces * 2, load=load
    )


def week_later() -> Data:
    data, week = faulty(), timedelta(days=7)
    runs = data.runs.assign(ts=data.runs["ts"] + week.total_seconds())
    load = data.load.assign(minute=data.load["minute"] + int(week.total_seconds()))
    return replace(data, runs=runs, load=load, window=Window(DAY.start + week, DAY.end + week))


def with_stranger() -> Data:
    data = faulty()
    other = World(
        seed=8,
        stages=(Kind("billing", "charge", "other", base=12), Kind("billing", "ledger", "fetch", tool="sql", base=40)),
    ).data()
    return replace(
        data,
        runs=pd.concat([data.runs, other.runs], ignore_index=True),
        totals=pd.concat([data.totals, other.totals], ignore_index=True),
        load=pd.concat([data.load, other.load], ignore_index=True),
    )


@cache
def found_in_faulty() -> Sequence[Finding]:
    return slow.find(faulty())


def find(data: Data) -> Sequence[Finding]:
    """The analyzer's own answer; the faulty world, which most questions compare with, is asked once."""
    return found_in_faulty() if data is faulty() else slow.find(data)


STATES = States(lambda: empty(DAY), lambda: World(seed=4).data(), faulty, shuffled, doubled, week_later, with_stranger)


@pytest.mark.parametrize("question", EXAM, ids=lambda question: question.__name__)
def test_slow_passes(question: Callable[[Analyzer, States], None]) -> None:
    question(slow.ANALYZER._replace(find=find), STATES)
