"""Run a scenario, on virtual time or live, and write the labelled truth beside its traces."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from instrumented_stack.clock import run_virtual
from instrumented_stack.errors import ScenarioError
from instrumented_stack.live import run_live
from instrumented_stack.outcome import Outcome, Overrides, Progress, prepare, start_of
from instrumented_stack.replay import Replay
from instrumented_stack.scenario import Scenario
from instrumented_stack.sinks import Sink, open_sink

__all__ = ["Outcome", "Overrides", "run"]


def run(
    scenario: Scenario | str | Path,
    otlp: str | Sink,
    overrides: Overrides | None = None,
    progress: Progress | None = None,
    truth: str | Path | None = None,
    speed: str = "max",
) -> Outcome:
    """Run `scenario` and write OTLP to `otlp` (URL, folder, .jsonl file or a Sink). `speed` max: virtual time; live: real
    services on loopback in real time, which needs a URL. `truth.json` goes to `truth`, or into the folder;
    `progress(share done, requests)` is called now and then. Raises ScenarioError, ConnectionError."""
    given = overrides or Overrides()
    plain = prepare(scenario, given)
    if speed != "live" and any(engine.kind != "simulated" for engine in plain.switches.engines.values()):
        raise ScenarioError(f"{plain.name}: a real engine has no virtual time; use --speed live")
    if speed == "live":
        outcome = _live(plain, otlp, progress)
    else:
        sink = open_sink(otlp) if isinstance(otlp, str) else otlp
        try:
            outcome = run_virtual(Replay(plain, start_of(plain, given), sink).run(progress))
        finally:
            sink.close()
    target = _truth_path(otlp, truth)
    if target is not None:
        target.write_text(json.dumps(outcome.truth, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return outcome


def _live(scenario: Scenario, otlp: str | Sink, progress: Progress | None) -> Outcome:
    if not isinstance(otlp, str) or not otlp.startswith(("http://", "https://")):
        raise ScenarioError(
            f"live mode exports over OTLP/HTTP: give an address such as http://127.0.0.1:4318, not {otlp!r}"
        )
    return asyncio.run(run_live(scenario, otlp, progress))


def _truth_path(otlp: str | Sink, truth: str | Path | None) -> Path | None:
    if truth is not None:
        return Path(truth)
    if not isinstance(otlp, str) or otlp.startswith(("http://", "https://")):
        return None
    path = Path(otlp)
    return path.with_suffix(".truth.json") if path.suffix in (".jsonl", ".json") else path / "truth.json"
