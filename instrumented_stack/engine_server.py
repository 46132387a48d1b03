"""A vLLM server as a child process: started with `deploy/vllm-cpu/serve.sh`, waited for, and never left behind.
`python -m instrumented_stack.engine_server NAME PORT CORES FOLDER` is the leash: when its standard input closes (its parent is gone,
however), the whole server goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

SERVE = Path(__file__).resolve().parents[1] / "deploy" / "vllm-cpu" / "serve.sh"
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server: its name in spans (`vllm-NAME`), port, CPU cores such as `0-1`, the environment folder that install.sh made,
    more words for vLLM, and variables such as where its spans go. `log`: where it may talk."""

    name: str
    port: int
    cores: str
    folder: Path
    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class ServerFailed(Exception):
    """The server ended or did not answer in time; the message says where its log is."""


class Server:
    """A server on its leash. `pid` is the leash's."""

    def __init__(self, plan: ServerPlan) -> None:
        self.plan = plan
        self._log = plan.log.open("ab") if plan.log else None
        argv = [
            sys.executable,
            "-m",
            "instrumented_stack.engine_server",
            plan.name,
            str(plan.port),
            plan.cores,
            str(plan.folder),
        ]
        self._process = subprocess.Popen(
            [*argv, *plan.words],
            stdin=subprocess.PIPE,
            stdout=self._log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**os.environ, **plan.environment},
            start_new_session=True,
        )

    def wait_ready(self, patience_s: float = 240.0) -> float:
        """Seconds until /health answered. Raises ServerFailed."""
        began = time.monotonic()
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while time.monotonic() - began < patience_s:
                if self._process.poll() is not None:
                    raise ServerFailed(f"vLLM {self.plan.name} ended with {self._process.returncode}{self._where()}")
                try:
                    if client.get(f"{self.plan.url}/health").is_success:
                        return time.monotonic() - began
                except httpx.TransportError:
                    pass
                time.sleep(0.25)
        raise ServerFailed(f"vLLM {self.plan.name} did not answer within {patience_s:.0f} s{self._where()}")

    def cpu_s(self) -> float:
        """CPU seconds that the server's processes have used so far."""
        spent = 0.0
        for process in session(self._process.pid):
            with suppress(psutil.Error):
                spent += sum(process.cpu_times()[:2])
        return spent

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        signal_tree(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the server and everything it started."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S + 5)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._log:
            self._log.close()

    def _where(self) -> str:
        return f"; see {self.plan.log}" if self.plan.log else ""


@contextmanager
def serving(plan: ServerPlan) -> Iterator[Server]:
    """A server that answers, for the length of the block. Raises ServerFailed."""
    server = Server(plan)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def signal_tree(leader: int, number: signal.Signals) -> None:
    """Send a signal to a whole session: vLLM's processes sit in groups of their own, but never leave the session."""
    for process in session(leader):
        with suppress(psutil.Error):
            if process.pid != os.getpid():
                process.send_signal(number)


def session(leader: int) -> list[psutil.Process]:
    """The processes of a session."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader:
                found.append(process)
    return found


def missing(folder: Path) -> str:
    """Why no server can be started from `folder`; empty when one can."""
    if not (folder / "bin" / "python").exists():
        return f"no vLLM environment in {folder}: deploy/vllm-cpu/install.sh {folder} makes one (2 to 6 GB)"
    if not (folder / "model" / "config.json").exists():
        return f"no model in {folder / 'model'}: deploy/vllm-cpu/install.sh {folder} unpacks it"
    return "" if SERVE.exists() else f"no {SERVE}: servers are started from a checkout of the repository"


def main(words: Sequence[str]) -> int:
    """The leash itself: NAME PORT CORES FOLDER [words for vLLM]. Leads a session of its own (its parent starts it so)."""
    process = subprocess.Popen(["bash", str(SERVE), *words], stdin=subprocess.DEVNULL)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    signal.signal(signal.SIGINT, lambda *_: told.set())

    def watch() -> None:
        while os.read(0, 1024):
            pass
        told.set()

    threading.Thread(target=watch, daemon=True).start()
    while process.poll() is None and not told.wait(0.2):
        pass
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    signal_tree(os.getpid(), signal.SIGKILL)
    return process.wait() if not told.is_set() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
