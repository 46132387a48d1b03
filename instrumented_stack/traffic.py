"""Open-loop arrivals: nobody waits for an answer before asking again. Times in seconds from the start of the run, ascending."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from instrumented_stack.errors import ScenarioError
from instrumented_stack.scenario import Scenario, Traffic

DAY_S, WEEK_S = 86_400.0, 604_800.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request's instant, and token counts where the source gives them (0 = the task decides)."""

    at_s: float
    input_tokens: int = 0
    output_tokens: int = 0


def arrivals(scenario: Scenario, start_unix_s: float) -> Iterator[Arrival]:
    """The arrivals of a run, in order, all before `scenario.seconds`."""
    traffic = scenario.traffic
    if traffic.arrivals is not None:
        yield from _from_file(traffic.arrivals, traffic.speedup, scenario.seconds)
        return
    rng = random.Random(f"{scenario.seed}/arrivals")
    peak = peak_rps(traffic)
    now = 0.0
    while True:
        now += rng.expovariate(peak)
        if now >= scenario.seconds:
            return
        if rng.random() * peak <= rate(traffic, now, start_unix_s):
            yield Arrival(now)


def rate(traffic: Traffic, at_s: float, start_unix_s: float) -> float:
    """Requests per second at an instant: the step in force, shaped by hour and weekday (UTC), plus bursts."""
    base = traffic.rps
    for since, rps in traffic.steps:
        base = rps if at_s >= since else base
    shape = 1.0
    clock = start_unix_s + at_s
    if traffic.shape in ("day", "week"):
        shape *= 1.0 - 0.6 * math.cos(2 * math.pi * ((clock % DAY_S) / DAY_S - 4 / 24))
    if traffic.shape == "week":
        weekday = int(clock // DAY_S + 3) % 7
        shape *= 0.5 if weekday >= 5 else 1.2
    return base * shape + sum(extra for since, until, extra in traffic.bursts if since <= at_s < until)


def peak_rps(traffic: Traffic) -> float:
    """An upper bound of `rate`."""
    base = max([traffic.rps, *(rps for _, rps in traffic.steps)])
    shape = {"steady": 1.0, "day": 1.6, "week": 1.92}[traffic.shape]
    return base * shape + sum(extra for _, _, extra in traffic.bursts)


def _from_file(path: Path, speedup: float, seconds: float) -> Iterator[Arrival]:
    """`.csv` with TIMESTAMP, ContextTokens, GeneratedTokens, or `.jsonl` with timestamp (ms), input_length, output_length."""
    try:
        rows = list(_csv_rows(path) if path.suffix == ".csv" else _json_rows(path))
    except (KeyError, ValueError, TypeError) as error:
        raise ScenarioError(f"{path}: not an arrivals file: {error}") from None
    rows.sort(key=lambda row: row[0])
    if not rows:
        raise ScenarioError(f"{path}: no arrivals in it")
    first = rows[0][0]
    for at, context, generated in rows:
        when = (at - first) / speedup
        if when >= seconds:
            return
        yield Arrival(when, context, generated)


def _csv_rows(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            stamp = datetime.fromisoformat(row["TIMESTAMP"][:26] + "+00:00").timestamp()
            yield stamp, int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _json_rows(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open() as file:
        for line in file:
            if line.strip():
                row = json.loads(line)
                yield row["timestamp"] / 1e3, int(row["input_length"]), int(row["output_length"])
