"""One sitting of the exam: a scenario file with a seed, played on virtual time, stored, cut into stage runs, and put to the analyzers.

Must stay true: the analyzers see only telemetry. Truth is read after they have answered.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analytics import failures, slow, stages
from analytics.findings import Finding, Window
from analytics.run import between
from bench.exam_marks import Result, Said
from bench.exam_names import renamed
from ingest.log import CHECKED, CHECKED_VERSION, METRICS, TRACES, Message
from ingest.store import Store
from ingest.writer import write

FILES_PER_WRITE = 8
TOKENS = ["input_tokens", "cached_tokens", "output_tokens", "ev_repeated_tokens"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario file and a seed (None: the file's own). `seconds` tells it in another time; `blind` is the share of stages whose
    tokens are hidden in a second answer (0: none); `cache` keeps the filled store there; `rename` gives every stage, tool and
    service another name; `sample_s` is how often hardware is looked at where the file does not say."""

    scenario: Path
    seed: int | None = None
    seconds: float | None = None
    blind: float = 0.0
    cache: Path | None = None
    rename: bool = False
    sample_s: float | None = None

    @property
    def key(self) -> str:
        """A name for files: the same plan over the same text has the same one."""
        text = hashlib.sha256(self.scenario.read_bytes()).hexdigest()[:8]
        seed = "own" if self.seed is None else self.seed
        how = f"{self.seconds or 0:g}s{f'-{self.sample_s:g}s' if self.sample_s else ''}{'-renamed' if self.rename else ''}"
        return f"{self.scenario.stem}-{seed}-{how}-{text}"


def sit(plan: Plan) -> Result:
    """Play, store, analyse. Raises RuntimeError with the stack's own words where the scenario does not run."""
    with tempfile.TemporaryDirectory(prefix="exam-") as work:
        home = plan.cache / plan.key if plan.cache else Path(work)
        begun = time.monotonic()
        truth = _prepare(plan, home)
        prepared = time.monotonic()
        with Store.open(str(home / "store")) as store:
            window = _window(truth)
            data = slow.ANALYZER.load(store, window)
            failed = failures.find(failures.load(store, window))
        loaded = time.monotonic()
        found = slow.find(data)
        answered = time.monotonic()
        seed = int(truth["seed"])
        hidden = _said(slow.find(hide_tokens(data, plan.blind, seed))) if plan.blind else None
        scenes = tuple(str(fact.value) for finding in failed for fact in finding.evidence if fact.name == "scene")
        spent = (prepared - begun, loaded - prepared, answered - loaded)
        return Result(plan.scenario.stem, seed, truth, _said(found), scenes, hidden, spent)


def _prepare(plan: Plan, home: Path) -> dict[str, Any]:
    """Fill `home`/store unless that was done before; the truth file is written last and says that all is there."""
    ready = home / "truth.json"
    if not ready.exists():
        home.mkdir(parents=True, exist_ok=True)
        folder = home / "otlp"
        truth = play(plan, folder)
        shutil.rmtree(home / "store", ignore_errors=True)
        with Store.open(str(home / "store")) as store:
            fill(store, folder, _window(truth))
        shutil.rmtree(folder)
        ready.write_text(json.dumps(truth, ensure_ascii=False))
    return dict(json.loads(ready.read_text()))


def play(plan: Plan, folder: Path) -> dict[str, Any]:
    """Let the stack write OTLP files into `folder`; returns its truth. Raises RuntimeError with the stack's own words."""
    command = [sys.executable, "-m", "instrumented_stack", "run", "--scenario", str(_sampled(plan, folder.parent))]
    command += ["--otlp", str(folder), "--speed", "max"]
    command += [] if plan.seed is None else ["--seed", str(plan.seed)]
    command += [] if plan.seconds is None else ["--seconds", f"{plan.seconds:g}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise RuntimeError(f"{plan.scenario}: the stack stopped with {done.returncode}: {said}")
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return renamed(folder, truth) if plan.rename else truth


def _sampled(plan: Plan, work: Path) -> Path:
    """The scenario file, or a copy that says how often hardware is looked at."""
    text = plan.scenario.read_text()
    if not plan.sample_s or any(word in text for word in ("sample_every", "arrivals")):
        return plan.scenario
    copy = work / plan.scenario.name
    copy.write_text(f'sample_every = "{plan.sample_s:g}s"\n{text}')
    return copy


def fill(store: Store, folder: Path, window: Window) -> None:
    """Store the files and build the stage runs, as the product does."""
    files = sorted(folder.glob("*.pb"))
    for first in range(0, len(files), FILES_PER_WRITE):
        messages = [_message(path, first + i) for i, path in enumerate(files[first : first + FILES_PER_WRITE])]
        write(store, messages, f"{folder.name}-{first}")
    stages.build(store, window)


def _message(path: Path, offset: int) -> Message:
    """A file as it lies in the log; traces bear the mark of a receiver that has checked them."""
    if path.name.startswith("metrics"):
        return Message(METRICS, 0, offset, path.read_bytes())
    return Message(TRACES, 0, offset, path.read_bytes(), headers={CHECKED: CHECKED_VERSION})


def hide_tokens(data: Any, share: float, seed: int = 0) -> Any:
    """The same data with token counts missing on a share of the stages that have them (every third for 1/3; which, the seed says)."""
    runs = data.runs.copy()
    if not len(runs):
        return data
    names = sorted(runs.loc[runs["input_tokens"].notna(), "stage"].unique())
    step = max(1, round(1 / share))
    mask = runs["stage"].isin(names[seed % step :: step])
    runs.loc[mask, TOKENS] = np.nan
    return replace(data, runs=runs)


def _said(findings: Sequence[Finding]) -> tuple[Said, ...]:
    return tuple(Said(f.subject["stage"], f.cause, f.subject["dimension"]) for f in findings)


def _window(truth: dict[str, Any]) -> Window:
    return between(truth["start"], truth["end"])
