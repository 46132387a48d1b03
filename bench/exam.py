"""Exam of the analyzers: scenario files on virtual time, through ingest, stages and analyzers, against what each file says must be found.

Must stay true: the analyzers see only telemetry. Truth is read after they have answered. Nothing is tuned to a scenario's name.
Run: python -m bench.exam [--scenarios DIR | --wild N] [--seeds N] [--out DIR --minutes M] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from fnmatch import fnmatch
from importlib import resources
from multiprocessing import get_context
from pathlib import Path

from bench.exam_marks import Result, report
from bench.exam_sit import Plan, sit
from bench.exam_wild import write_worlds
from instrumented_stack.read import read

FIRST_SEED = 101
MIN_REQUESTS = 400


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every target is met, else 1."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="exam-out-") as kept:
        out = options.out or Path(kept)
        plans = _plans(options, out)
        left = [plan for plan in plans if not (out / f"{plan.key}.json").exists()]
        begun = time.monotonic()
        until = begun + options.minutes * 60 if options.minutes else float("inf")
        for plan, result in _sat(left, options.jobs, until):
            _keep(out / f"{plan.key}.json", result)
            if not options.json:
                print(*(sheet.line() for sheet in result.sheets()), sep="\n", flush=True)
        results = [Result.from_json(json.loads(path.read_text())) for path in sorted(out.glob("*.json"))]
        todo = sum(not (out / f"{plan.key}.json").exists() for plan in plans)
    marks = report(results) | {"to_do": todo, "seconds": round(time.monotonic() - begun, 1), "machine": machine()}
    print(json.dumps(marks, indent=None if options.json else 2))
    return 0 if marks["passed"] and not todo else 1


def _sat(plans: Sequence[Plan], jobs: int, until: float) -> Iterator[tuple[Plan, Result]]:
    """Results as they come; nothing is begun after `until` (of time.monotonic)."""
    if jobs == 1:
        yield from ((plan, sit(plan)) for plan in plans if time.monotonic() < until)
        return
    waiting = iter(plans)
    running: dict[Future[Result], Plan] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < until and (plan := next(waiting, None)):
                running[pool.submit(sit, plan)] = plan
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()


def _keep(path: Path, result: Result) -> None:
    """Whole or not at all: a sitting that was cut off is sat again."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result.to_json(), ensure_ascii=False))
    part.replace(path)


def shipped() -> Path:
    """The folder of scenarios that come with the stack."""
    return Path(str(resources.files("instrumented_stack") / "scenarios"))


def machine() -> str:
    """Where this was measured."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _plans(options: argparse.Namespace, out: Path) -> list[Plan]:
    out.mkdir(parents=True, exist_ok=True)
    if options.wild:
        files = write_worlds(out / "worlds", range(options.wild_from, options.wild_from + options.wild))
        seeds: Iterable[int | None] = [None]
    else:
        files = sorted(options.scenarios.glob("*.toml"))
        seeds = [None] if options.seeds == 1 else range(FIRST_SEED, FIRST_SEED + options.seeds)
    if options.only:
        files = [path for path in files if any(fnmatch(path.stem, one) for one in options.only.split(","))]
    if not files:
        raise SystemExit(f"no scenario files (*.toml) in {options.scenarios} that match {options.only or '*'}")
    lengths = {path: _length(path, options.seconds) for path in files}
    made = Plan(files[0], None, None, options.blind, options.cache, bool(options.wild), options.sample_every)
    return [replace(made, scenario=path, seed=seed, seconds=lengths[path]) for seed in seeds for path in files]


def _length(path: Path, seconds: float | None) -> float | None:
    """`seconds` where the file's own story is longer and enough requests are left to judge by; else None, its own length."""
    if seconds is None:
        return None
    scenario = read(path)
    enough = scenario.traffic.arrivals is None and scenario.traffic.rps * seconds >= MIN_REQUESTS
    return seconds if seconds < scenario.seconds and enough else None


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.exam", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenarios", type=Path, default=shipped(), help="folder of scenario files (default: the shipped ones)")
    add("--seeds", type=int, default=1, help="runs of each file with different seeds (default 1: the file's own)")
    add("--wild", type=int, default=0, help="instead of files: so many worlds made up at random, under other names")
    add("--wild-from", type=int, default=1, help="number of the first made-up world (default 1)")
    add(
        "--seconds",
        type=float,
        help="tell longer scenarios in so many seconds of virtual time, if enough requests are left",
    )
    add(
        "--sample-every",
        type=float,
        help="look at hardware every so many seconds where the file does not say how often",
    )
    add("--only", default="", help="names of scenarios, comma-separated; * and ? allowed")
    add(
        "--blind",
        type=float,
        default=1 / 3,
        help="share of stages whose tokens are hidden in the second answer; 0: none",
    )
    add("--out", type=Path, help="keep each result here, leave out what is there, and mark all that is there")
    add(
        "--cache", type=Path, help="keep the filled stores here (about 10 MB each), so that they need not be made again"
    )
    add("--minutes", type=float, default=0.0, help="begin nothing new after so many minutes")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="sittings at once")
    add("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
