"""A trace's runs cut into the pieces a waterfall shows: work, time without reason, declared wait, gap, time in children.

Must stay true: the pieces of a run lie end to end and are as long as the run; they show how much, not at which instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

MOST_RUNS = 300
INDENT = "\u2800"  # blank, and unlike a space kept by the chart


def pieces(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows `place, label, part, part_ms, start_s, end_s, …` from the rows of a waterfall, at most MOST_RUNS runs (the longest)."""
    shown = frame if len(frame) <= MOST_RUNS else frame.nlargest(MOST_RUNS, "duration_ms").sort_index()
    return pd.DataFrame(list(_all(shown)))


def _all(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(frame.to_dict("records")):
        label = f"{INDENT * min(int(row['depth']), 12)}{row['stage']}" + "\u200b" * place
        at = float(row["start_ms"])
        common = {
            "place": place,
            "label": label,
            "stage": row["stage"],
            "service": row["service"],
            "duration_ms": row["duration_ms"],
            "self_ms": row["self_ms"],
            "critical": bool(row["critical"]),
            "run_start_s": at / 1000,
            "run_end_s": float(row["end_ms"]) / 1000,
            "note": _note(row),
        }
        for number, (part, length) in enumerate(_parts(row)):
            yield {
                **common,
                "first": number == 0,
                "part": part,
                "part_ms": length,
                "start_s": at / 1000,
                "end_s": (at + length) / 1000,
            }
            at += length


def _parts(row: dict[Any, Any]) -> list[tuple[str, float]]:
    """What the run's time went into, in ms; adds up to its duration."""
    whole, own = float(row["duration_ms"]), min(float(row["self_ms"]), float(row["duration_ms"]))
    wait = min(float(row["wait_ms"] or 0), own)
    without = row["unjustified_ms"]
    bad = 0.0 if without != without or without is None else min(max(float(without), 0.0), own - wait)
    name = "gap" if row["gap"] else "failed" if row["failed"] and own >= whole * 0.5 else "own work"
    found = [(name, own - wait - bad), ("without reason", bad), ("declared wait", wait), ("in children", whole - own)]
    return [(part, length) for part, length in found if length > 0] or [(name, 0.0)]


def _note(row: dict[Any, Any]) -> str:
    told = [row["model"], row["tool"], row["host"], row["error_message"] if row["failed"] else ""]
    return " · ".join(str(part) for part in told if part)
