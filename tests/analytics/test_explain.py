"""What sets the slow ones apart: planted values are named, interactions too, chance is not."""

import numpy as np
import pandas as pd

from analytics.explain import find

NO_ATTRIBUTES = pd.DataFrame({"dimension": [], "value": [], "runs": [], "hits": []})


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.groupby(list(runs.columns), sort=False).size().rename("runs").reset_index()


def population(seed: int, n: int = 20_000) -> tuple[pd.DataFrame, np.random.Generator]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "region": rng.choice(["eu", "us", "ap"], n),
            "device": rng.choice(["ios", "android", "web"], n, p=[0.2, 0.3, 0.5]),
            "version": rng.choice(["1", "2"], n),
            "host": rng.choice([f"h{i}" for i in range(10)], n),
        }
    )
    return frame, rng


def test_a_planted_value_comes_first_with_its_effect() -> None:
    frame, rng = population(1)
    rate = np.where(frame["device"] == "ios", 0.15, 0.05)
    found = find(cells(frame.assign(hit=rng.random(len(frame)) < rate)), NO_ATTRIBUTES)
    top = found.iloc[0]
    assert (top["dimension"], top["value"]) == ("device", "ios")
    assert top["ratio_low"] < 3 < top["ratio_high"]
    assert bool(top["significant"])
    assert set(found[found["significant"]]["dimension"]) == {"device"}


def test_a_pair_that_only_acts_together_is_named() -> None:
    frame, rng = population(2, 40_000)
    rate = np.where((frame["region"] == "ap") & (frame["version"] == "2"), 0.3, 0.03)
    top = find(cells(frame.assign(hit=rng.random(len(frame)) < rate)), NO_ATTRIBUTES).iloc[0]
    assert (top["dimension"], top["value"]) == ("region × version", "ap × 2")


def test_chance_is_not_called_significant() -> None:
    named = 0
    for seed in range(10):
        frame, rng = population(10 + seed, 8000)
        named += int(find(cells(frame.assign(hit=rng.random(len(frame)) < 0.05)), NO_ATTRIBUTES)["significant"].sum())
    assert named <= 1


def test_thin_slices_are_marked_and_tiny_ones_left_out() -> None:
    frame, rng = population(3)
    frame.loc[:49, "host"] = "rare"
    frame.loc[50:54, "host"] = "tiny"
    found = find(cells(frame.assign(hit=rng.random(len(frame)) < 0.05)), NO_ATTRIBUTES)
    assert found[found["value"] == "rare"]["thin"].all()
    assert "tiny" not in set(found["value"])


def test_attributes_join_in_unless_a_dimension_says_the_same() -> None:
    frame, rng = population(4)
    hit = rng.random(len(frame)) < np.where(frame["device"] == "ios", 0.2, 0.05)
    frame = frame.assign(hit=hit)
    ios = frame[frame["device"] == "ios"]
    rows = [("device.type", "ios", len(ios), int(ios["hit"].sum())), ("device.type", "web", 9000, 450)]
    rows += [("plan", "free", 5000, 1200), ("plan", "pro", 15_000, 600)]
    found = find(cells(frame), pd.DataFrame(rows, columns=["dimension", "value", "runs", "hits"]))
    assert ("plan", "free") in set(zip(found["dimension"], found["value"], strict=True))
    assert ("device.type", "ios") not in set(zip(found["dimension"], found["value"], strict=True))


def test_no_hits_or_all_hits_say_nothing() -> None:
    frame, _ = population(5, 2000)
    for hit in (False, True):
        assert not find(cells(frame.assign(hit=hit)), NO_ATTRIBUTES)["significant"].any()
