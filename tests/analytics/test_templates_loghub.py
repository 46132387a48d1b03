"""The log grouping benchmark: scores on labelled sets where they are at hand, and the scoring itself anywhere."""

from pathlib import Path

import pytest

from bench.loghub import group, read, scores

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "log-grouping"


def test_scores_count_exact_groups_and_pairs() -> None:
    perfect = scores(["x", "x", "y"], ["a", "a", "b"])
    assert (perfect["ga"], perfect["fga"], perfect["pair_precision"], perfect["pair_recall"]) == (1.0, 1.0, 1.0, 1.0)
    split = scores(["x", "y", "z"], ["a", "a", "b"])
    assert split["ga"] == pytest.approx(1 / 3)
    assert split["fga"] == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert split["pair_recall"] == 0.0
    joined = scores(["x", "x", "x"], ["a", "a", "b"])
    assert (joined["ga"], joined["pair_precision"], joined["pair_recall"]) == (0.0, pytest.approx(1 / 3), 1.0)


def test_labelled_sets_are_grouped_as_their_authors_did() -> None:
    files = sorted(DATA.rglob("*_structured_corrected.csv")) if DATA.is_dir() else []
    if not files:
        pytest.skip(f"no labelled log sets in {DATA.name}; they may be used for research but not be committed")
    results = []
    for path in files:
        messages, truth = read(path)
        results.append(scores(group(messages), truth))
    assert sum(item["ga"] for item in results) / len(results) >= 0.98
    assert sum(item["fga"] for item in results) / len(results) >= 0.96
    assert min(item["pair_precision"] for item in results) >= 0.99
