"""What goes into a run beside the scenario, and what comes out of it: counts, times, and the labelled truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from instrumented_stack.pace import Pace
from instrumented_stack.read import read
from instrumented_stack.scenario import Scenario

Progress = Callable[[float, int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did: counts, when (UTC), the truth as a JSON document, and for a live run the pace it kept."""

    requests: int
    failed: int
    spans: int
    start: datetime
    end: datetime
    truth: dict[str, Any]
    pace: Pace | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line may say louder than the file. None = as in the file."""

    rps: float | None = None
    seconds: float | None = None
    seed: int | None = None
    start: datetime | None = None


def prepare(scenario: Scenario | str | Path, overrides: Overrides) -> Scenario:
    """Read the file if need be and apply the overrides."""
    plain = scenario if isinstance(scenario, Scenario) else read(Path(scenario))
    if overrides.seconds is not None:
        plain = plain.scaled(overrides.seconds)
    if overrides.seed is not None:
        plain = replace(plain, seed=overrides.seed)
    if overrides.rps is not None:
        plain = replace(plain, traffic=replace(plain.traffic, rps=overrides.rps, steps=(), bursts=(), arrivals=None))
    return plain


def start_of(scenario: Scenario, overrides: Overrides) -> datetime:
    """The given start, else so that the run ends now; whole seconds, UTC."""
    if overrides.start is not None:
        return overrides.start.astimezone(UTC)
    return (datetime.now(UTC) - timedelta(seconds=scenario.seconds)).replace(microsecond=0)


def truth_of(scenario: Scenario, start: datetime, requests: int, spans: int) -> dict[str, Any]:
    """What was injected and what must be found; times in ISO 8601 UTC."""

    def at(seconds: float) -> str:
        return (start + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    faults = [
        {
            "stage": item.stage,
            "cause": item.kind,
            "start": at(item.start_s),
            "end": at(item.end_s),
            "where": {key: list(values) if len(values) > 1 else values[0] for key, values in item.where.items()},
            "strength": item.strength,
        }
        for item in scenario.faults
    ]
    expects = [
        {
            key: value
            for key, value in (("stage", e.stage), ("cause", e.cause), ("cluster", e.cluster), ("optional", e.optional))
            if value
        }
        for e in scenario.expects
    ]
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": scenario.seed,
        "start": at(0.0),
        "end": at(scenario.seconds),
        "requests": requests,
        "spans": spans,
        "tool_select": scenario.switches.tool_select,
        "faults": faults,
        "expect": expects,
    }
