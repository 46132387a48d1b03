"""`stagescope demo`: an agent product with known faults, seen from the first trace to the ticket, on this machine alone.

Must stay true: every number printed is read from the store after the stack sent it over OTLP; nothing here knows the answer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from analytics import failures, roadmap, run, stages
from ingest import mapping
from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings
from ingest.store import locate, make_folder
from ui import commands_act, text
from ui.command import DONE
from ui.commands_find import print_findings
from ui.up import Node, node, until_told_to_stop

BACK = "14d"
FOLDER = "./demo-data"
SCENARIO = "demo"
LIVE_RPS = 2.0
FOREVER_S = 7 * 86_400.0
MARK = "stagescope-demo"
LOOK_S = 0.5
FIRST_LOOK_S = 120.0


@dataclass(frozen=True, slots=True)
class Options:
    """How many seconds live traffic lasts (None: until Ctrl-C), with pages or not, and whether earlier demo data stays."""

    seconds: float | None = None
    pages: bool = True
    keep: bool = False


def run_demo(settings: Settings, options: Options) -> int:
    """Run the whole story; returns an exit code."""
    began = time.monotonic()
    fresh = prepare(settings, options.keep)
    watch = ("--every", "15s", "--last", BACK, "--no-alerts")
    with until_told_to_stop() as stop, ExitStack() as stack:
        running = stack.enter_context(node(settings, pages=options.pages, watch=watch))
        story = Story(running, stop, began)
        story.tell(f"up: OTLP on {running.otlp_http} and {running.otlp_grpc}, SQL on {running.clickhouse}")
        if fresh:
            story.history()
        ends = time.monotonic() + (options.seconds or FOREVER_S)
        stack.enter_context(
            stack_of(
                running, SCENARIO, "live", "--seconds", f"{options.seconds or FOREVER_S:g}", "--rps", f"{LIVE_RPS:g}"
            )
        )
        story.tell("live traffic runs: gateway → orchestrator → edge, middle and core workers on simulated engines")
        patience = time.monotonic() + FIRST_LOOK_S
        story.until(lambda: story.seen() or time.monotonic() > patience)
        if options.seconds is not None:
            story.until(lambda: time.monotonic() >= ends)
        if not stop.is_set():
            story.tell("looking at everything once more …")
            _report(running, settings)
        if options.seconds is None and not stop.is_set():
            print("\nthe stack keeps running; Ctrl-C stops", flush=True)
            story.until(lambda: False)
    return DONE


class Story:
    """What happens between start and end, told with the time since the start."""

    def __init__(self, running: Node, stop: threading.Event, began: float) -> None:
        self._running, self._stop, self._began = running, stop, began
        self._first_told = False

    def tell(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {line}", flush=True)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for `done`, or for a person to stop us, keeping `up` healthy meanwhile."""
        while not done() and not self._stop.wait(LOOK_S):
            self._running.look()

    def seen(self) -> bool:
        """True once there is a finding; the first is told."""
        if not self._first_told and (found := run.latest(self._running.store)):
            self._first_told = True
            self.tell(f"first finding: {text.printable(found[0].title)} [{found[0].cause}]")
        return self._first_told

    def history(self) -> None:
        """Two weeks on virtual time, sent like any traffic. Raises StagescopeError when the stack failed."""
        with stack_of(self._running, SCENARIO, "max") as history:
            self.tell("two weeks of history are being made on virtual time and sent over OTLP …")
            self.until(lambda: self.seen() or history.poll() is not None)
            self.until(lambda: history.poll() is not None)
        if self._stop.is_set():
            return
        if history.returncode:
            raise StagescopeError(f"making the history failed with {history.returncode}; the reason stands above")
        self.tell("history is in")


def prepare(settings: Settings, keep: bool) -> bool:
    """Make the folder ready; True when it is empty. Tickets of an earlier demo stay, its data only with `keep`."""
    folder = locate(settings.store).folder
    if folder is None:
        raise BadSetting("STAGESCOPE_STORE", "a server", "a folder: the demo makes a store of its own")
    mark = folder / MARK
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise BadSetting(
            "--store", str(folder), "an empty folder, or one of an earlier demo: this one holds something else"
        )
    if mark.exists() and keep:
        return False
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.name not in ("tickets", MARK):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    make_folder(folder, "--store")
    mark.write_text("made by `stagescope demo`, which empties this folder when it runs again\n", encoding="utf-8")
    return True


@contextmanager
def stack_of(running: Node, scenario: str, speed: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The instrumented stack in a process of its own, which ends with the block or with us."""
    words = ["stack", "run", "--with-parent", "--scenario", scenario, "--otlp", running.otlp_http, "--speed", speed]
    argv = [sys.executable, "-m", "ui.cli", *words, *more]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _report(running: Node, settings: Settings) -> None:
    """One last look over the two weeks, then everything a person came for."""
    stages.build_touched(running.store, mapping.load(settings.stages or None))
    span = run.last(BACK)
    found = run.run(running.store, span)
    done = commands_act.sync(running.store, settings, "files")
    head(f"Findings ({len(found)})")
    print_findings(found)
    clusters = failures.clusters(running.store, span)
    head(f"Failure clusters ({len(clusters)})")
    commands_act.print_clusters(clusters)
    head("Roadmap")
    print(roadmap.render(roadmap.build(running.store, owners=commands_act.owners(settings)), "md"))
    head("Tickets")
    commands_act.print_tickets(done, settings)
    head("Look around")
    for name, address in running.addresses():
        print(f"{name:<16}{address}")


def head(title: str) -> None:
    print(f"\n── {title} " + "─" * max(4, 76 - len(title)), flush=True)
