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
from ingest.store import locate
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


@dataclass(frozen=True, slots=True)
class Options:
    """How long the live part lasts (None: until Ctrl-C), with pages or not, and whether earlier demo data stays."""

    seconds: float | None = None
    pages: bool = True
    keep: bool = False


def run_demo(settings: Settings, options: Options) -> int:
    """Run the whole story; returns an exit code."""
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    fresh = _prepare(settings, options.keep)
    with until_told_to_stop() as stop, ExitStack() as stack:
        running = stack.enter_context(
            node(settings, pages=options.pages, watch=("--every", "15s", "--last", BACK, "--no-alerts"))
        )
        tell(
            f"up: OTLP on {running.otlp_http} and {running.otlp_grpc}, SQL on {running.clickhouse}, data in {running.folder}"
        )
        length = f"{options.seconds or FOREVER_S:g}"
        stack.enter_context(_stack(running, "live", "--seconds", length, "--rps", f"{LIVE_RPS:g}"))
        tell("live traffic runs: gateway → orchestrator → edge, middle and core workers on simulated engines")
        seen = _Seen(running, tell)
        if fresh:
            with _stack(running, "max") as history:
                tell("two weeks of history are being made on virtual time and sent over OTLP …")
                _until(lambda: seen.look() or history.poll() is not None, running, stop)
                _until(lambda: history.poll() is not None, running, stop)
            if stop.is_set():
                return DONE
            if history.returncode:
                raise StagescopeError(f"making the history failed with {history.returncode}; the reason stands above")
            tell("history is in")
        _until(seen.look, running, stop)
        if options.seconds is not None:
            ends = began + options.seconds
            _until(lambda: time.monotonic() >= ends, running, stop)
        if stop.is_set():
            return DONE
        tell("looking at everything once more …")
        _report(running, settings)
        if options.seconds is None:
            print("\nthe stack keeps running; Ctrl-C stops", flush=True)
            _until(lambda: False, running, stop)
    return DONE


def _prepare(settings: Settings, keep: bool) -> bool:
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
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text("made by `stagescope demo`, which empties this folder when it runs again\n", encoding="utf-8")
    return True


@contextmanager
def _stack(running: Node, speed: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The instrumented stack in a process of its own, which ends with the block or with us."""
    words = ["stack", "run", "--with-parent", "--scenario", SCENARIO, "--otlp", running.otlp_http, "--speed", speed]
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


def _until(done: Callable[[], bool], running: Node, stop: threading.Event) -> None:
    """Wait for `done`, or for a person to stop us, keeping `up` healthy meanwhile."""
    while not done() and not stop.wait(LOOK_S):
        running.look()


class _Seen:
    """Tells of the first finding, once."""

    def __init__(self, running: Node, tell: Callable[[str], None]) -> None:
        self._running, self._tell, self._found = running, tell, False

    def look(self) -> bool:
        """True once there is a finding."""
        if not self._found and (found := run.latest(self._running.store)):
            self._found = True
            self._tell(f"first finding: {text.printable(found[0].title)} [{found[0].cause}]")
        return self._found


def _report(running: Node, settings: Settings) -> None:
    """One last look over the two weeks, then everything a person came for."""
    stages.build_touched(running.store, mapping.load(settings.stages or None))
    span = run.last(BACK)
    found = run.run(running.store, span)
    done = commands_act.sync(running.store, settings, "files")
    _head(f"Findings ({len(found)})")
    print_findings(found)
    clusters = failures.clusters(running.store, span)
    _head(f"Failure clusters ({len(clusters)})")
    commands_act.print_clusters(clusters)
    _head("Roadmap")
    print(roadmap.render(roadmap.build(running.store, owners=commands_act.owners(settings)), "md"))
    _head("Tickets")
    commands_act.print_tickets(done, settings)
    _head("Look around")
    for name, address in running.addresses():
        print(f"{name:<16}{address}")


def _head(title: str) -> None:
    print(f"\n── {title} " + "─" * max(4, 76 - len(title)), flush=True)
