"""A run's pieces lie end to end and add up to the run, whatever its numbers."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.commands_look import print_trace
from ui.waterfall import MOST_RUNS, pieces

MS = st.floats(0, 1e6, allow_nan=False)


def run(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "depth": 0,
        "stage": "tool_select",
        "service": "edge",
        "start_ms": 0.0,
        "end_ms": 900.0,
        "duration_ms": 900.0,
        "self_ms": 900.0,
        "wait_ms": 0.0,
        "unjustified_ms": float("nan"),
        "gap": False,
        "critical": True,
        "failed": False,
        "model": "",
        "tool": "",
        "host": "",
        "error_message": "",
    }
    return row | changes


def parts(**changes: object) -> dict[str, float]:
    frame = pieces(pd.DataFrame([run(**changes)]))
    return dict(zip(frame["part"], frame["part_ms"], strict=True))


def test_time_without_reason_is_shown_beside_the_work() -> None:
    assert parts(unjustified_ms=400.0) == {"own work": 500.0, "without reason": 400.0}


def test_a_declared_wait_is_no_fault() -> None:
    assert parts(wait_ms=700.0, unjustified_ms=400.0) == {"without reason": 200.0, "declared wait": 700.0}


def test_children_and_gaps_have_their_own_colour() -> None:
    assert parts(self_ms=100.0) == {"own work": 100.0, "in children": 800.0}
    assert parts(gap=True, stage="gap: a → b") == {"gap": 900.0}
    assert parts(failed=True) == {"failed": 900.0}


@given(duration=MS, own=MS, wait=MS, without=MS | st.just(float("nan")), failed=st.booleans())
def test_pieces_add_up(duration: float, own: float, wait: float, without: float, failed: bool) -> None:
    row = run(duration_ms=duration, end_ms=duration, self_ms=own, wait_ms=wait, unjustified_ms=without, failed=failed)
    frame = pieces(pd.DataFrame([row]))
    assert abs(frame["part_ms"].sum() - duration) <= 1e-6 * max(1.0, duration)
    assert (frame["part_ms"] >= 0).all()
    assert (frame["start_s"].iloc[1:].to_numpy() == frame["end_s"].iloc[:-1].to_numpy()).all()


def test_a_huge_trace_shows_its_longest_runs() -> None:
    rows = [run(start_ms=float(i), end_ms=float(2 * i), duration_ms=float(i), self_ms=float(i)) for i in range(2000)]
    frame = pieces(pd.DataFrame(rows))
    assert frame["place"].nunique() == MOST_RUNS
    assert frame["duration_ms"].min() == 2000 - MOST_RUNS
    assert frame["label"].nunique() == MOST_RUNS


def test_a_long_chain_prints_lines_of_bounded_width(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        run(depth=depth, critical_ms=1.0, error_type="", stage=f"step {depth}", start_ms=float(depth), duration_ms=1.0)
        for depth in range(3000)
    ]
    print_trace(pd.DataFrame(rows))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3000 + 3
    assert "step 2999" in lines[-2]
    assert max(len(line) for line in lines) < 300
