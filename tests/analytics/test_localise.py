"""Planted faults in a small system of services are laid at the right door, and healthy traffic blames nobody strongly."""

import numpy as np
import pandas as pd
import pytest

from analytics.localise import Metrics, localise
from analytics.localise_score import normal_scores, shift

SERVICES = ("front", "cart", "pay", "ship", "mail")
EDGES = (("front", "cart"), ("front", "pay"), ("pay", "mail"), ("front", "ship"), ("cart", "ship"))


def traffic(seed: int, fault: str = "", how: str = "busy", factor: float = 3.0, blocks: int = 8) -> pd.DataFrame:
    """`blocks` healthy blocks of 60 traces and a window of 60 in which `fault` acts."""
    rng = np.random.default_rng(seed)
    rows = []
    for block in [*range(blocks), -1]:
        mood = {name: rng.normal(0, 0.05) for name in SERVICES}
        for trace in range(60):
            acts = block == -1
            for name in SERVICES:
                slow = factor if acts and name == fault and how == "busy" else 1.0
                rows.append((name, "work", "", trace, block, rng.lognormal(16 + mood[name], 0.3) * slow, 0.0, 0.0))
            for caller, callee in EDGES:
                legs = rng.lognormal(13, 0.3, 2)
                if acts and how == "egress":
                    legs = legs * np.array([factor if caller == fault else 1, factor if callee == fault else 1])
                rows.append((caller, "call", callee, trace, block, 0.0, *legs))
    frame = pd.DataFrame(
        rows, columns=["service", "stage", "callee", "trace", "block", "own_ns", "request_ns", "response_ns"]
    )
    return frame.assign(gap_ns=frame["request_ns"] + frame["response_ns"])


@pytest.mark.parametrize("fault", ["cart", "pay", "ship", "mail"])
@pytest.mark.parametrize("how", ["busy", "egress"])
def test_the_faulty_service_comes_first(fault: str, how: str) -> None:
    found = localise(traffic(1, fault, how))
    assert found[0].service == fault
    assert found[0].score > found[1].score + 2


def test_healthy_traffic_has_no_strong_suspect() -> None:
    assert max(suspect.score for seed in range(5) for suspect in localise(traffic(seed))) < 3


def test_order_and_an_unrelated_service_change_nothing() -> None:
    runs = traffic(2, "pay")
    mixed = localise(runs.sample(frac=1, random_state=3).reset_index(drop=True))
    assert [s.service for s in mixed] == [s.service for s in localise(runs)]
    other = runs[runs["service"] == "mail"].assign(service="unrelated", callee="")
    assert localise(pd.concat([runs, other]))[0].service == "pay"


def test_metrics_name_a_service_that_left_no_trace() -> None:
    quiet = traffic(3)
    assert localise(quiet[quiet["block"] != -1], Metrics({"mail": 6.0, "pay": 0.5}))[0].service == "mail"
    assert localise(quiet.iloc[:0]) == []


def test_scores_are_normal_on_the_baseline_and_bounded_beyond_it() -> None:
    baseline = np.sort(np.random.default_rng(4).lognormal(10, 1, 5000))
    scores = normal_scores(baseline, baseline)
    assert abs(scores.mean()) < 0.01
    assert 0.95 < scores.std() < 1.02
    assert normal_scores(np.array([baseline[-1] * 1e9, 0.0]), baseline).tolist() == [6.0, -3.0]


def test_constant_values_and_too_few_are_no_evidence() -> None:
    same = np.full(200, 5.0)
    found = shift(same[:50], 50, same, np.arange(200) // 20)
    assert found is not None
    assert found.evidence < 0
    assert shift(same[:2], 2, same, np.zeros(200, int)) is None
    assert shift(same[:50], 50, same[:5], np.zeros(5, int)) is None
