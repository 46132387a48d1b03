"""Exam of the analyzers: scenario files on virtual time, through ingest, stages and analyzers, against what each file says must be found.

Must stay true: the analyzers see only telemetry. Truth is read after they have answered. Nothing is tuned to a scenario's name.
Run: python -m bench.exam [--scenarios DIR] [--seeds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from analytics import failures, slow, stages
from analytics.run import between
from bench.exam_marks import Sheet, report
from ingest.log import METRICS, TRACES, Message
from ingest.store import Store
from ingest.writer import write

PAD_S = 3_600
FILES_PER_WRITE = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One sitting: a scenario file with a seed; `seconds` shortens it, `blind` is the share of stages whose tokens are hidden."""

    scenario: Path
    seed: int | None
    seconds: float | None
    blind: float


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every target is met, else 1."""
    options = _options(arguments)
    plans = _plans(options)
    begun = time.monotonic()
    sheets: list[Sheet] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for sheet in pool.map(sit, plans):
            sheets.append(sheet)
            if not options.json:
                print(sheet.line(), flush=True)
    marks = report(sheets) | {"seconds": round(time.monotonic() - begun, 1), "machine": machine()}
    print(json.dumps(marks, indent=None if options.json else 2))
    return 0 if marks["passed"] else 1


def sit(plan: Plan, keep: Path | None = None) -> Sheet:
    """Run one scenario and the analyzer over it. `keep` is a folder for the store instead of one that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="exam-") as work:
        folder = Path(work) / "otlp"
        truth = play(plan, folder)
        store = Store.open(str(keep or Path(work) / "store"))
        with store:
            window = between(truth["start"], truth["end"])
            fill(store, folder, truth, window)
            data = slow.ANALYZER.load(store, window)
            failed = failures.find(failures.load(store, window))
        if plan.blind:
            data = hide_tokens(data, plan.blind)
        begun = time.monotonic()
        found = slow.find(data)
        seconds = time.monotonic() - begun
        return Sheet(plan.scenario.stem, int(truth["seed"]), truth, tuple(found), seconds, tuple(failed))


def play(plan: Plan, folder: Path) -> dict[str, Any]:
    """Let the stack write OTLP files into `folder`; returns its truth. Raises CalledProcessError with the stack's own words."""
    command = [
        sys.executable,
        "-m",
        "instrumented_stack",
        "run",
        "--scenario",
        str(plan.scenario),
        "--otlp",
        str(folder),
        "--speed",
        "max",
    ]
    command += [] if plan.seed is None else ["--seed", str(plan.seed)]
    command += [] if plan.seconds is None else ["--seconds", f"{plan.seconds:g}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{plan.scenario}: the stack stopped with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return truth


def fill(store: Store, folder: Path, truth: dict[str, Any], window: Any) -> None:
    """Store the files and build the stage runs, as the product does."""
    files = sorted(folder.glob("*.pb"))
    for first in range(0, len(files), FILES_PER_WRITE):
        messages = [
            Message(METRICS if path.name.startswith("metrics") else TRACES, 0, first + i, path.read_bytes())
            for i, path in enumerate(files[first : first + FILES_PER_WRITE])
        ]
        write(store, messages, f"{folder.name}-{first}")
    stages.build(store, window)


def hide_tokens(data: Any, share: float) -> Any:
    """The same data with token counts missing on a share of the stages that have them (every third for 1/3), by name."""
    runs = data.runs.copy()
    names = sorted(runs.loc[runs["input_tokens"].notna(), "stage"].unique())
    blind = names[:: max(1, round(1 / share))]
    mask = runs["stage"].isin(blind)
    runs.loc[mask, ["input_tokens", "cached_tokens", "output_tokens", "ev_repeated_tokens"]] = float("nan")
    return replace(data, runs=runs)


def shipped() -> Path:
    """The folder of scenarios that come with the stack."""
    return Path(str(resources.files("instrumented_stack") / "scenarios"))


def machine() -> str:
    """Where this was measured."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _plans(options: argparse.Namespace) -> list[Plan]:
    files = sorted(options.scenarios.glob("*.toml"))
    if options.only:
        files = [path for path in files if path.stem in options.only.split(",")]
    if not files:
        raise SystemExit(f"no scenario files (*.toml) in {options.scenarios}")
    seeds: Iterable[int | None] = [None] if options.seeds == 1 else range(101, 101 + options.seeds)
    return [Plan(path, seed, options.seconds, options.blind) for seed in seeds for path in files]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.exam", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenarios", type=Path, default=shipped(), help="folder of scenario files (default: the shipped ones)"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="runs of each file with different seeds (default 1: the file's own)"
    )
    parser.add_argument("--seconds", type=float, help="shorten each scenario to this many seconds of virtual time")
    parser.add_argument("--only", default="", help="names of scenarios, comma-separated")
    parser.add_argument(
        "--blind", type=float, default=0.0, help="share of stages whose token counts are hidden from the analyzer"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="sittings at once")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
