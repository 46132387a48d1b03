"""A real `stagescope up` (or `demo`) in a process of its own, on free ports."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """The first true answer of `condition`; fails after `timeout_s`."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        if answer := condition():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


@dataclass(frozen=True)
class Up:
    """A running `up`."""

    process: subprocess.Popen[str]
    folder: Path
    grpc: int
    http: int
    clickhouse: int
    pages: int

    def ask(self, query: str) -> str:
        """What `curl` would get."""
        answer = httpx.get(f"http://127.0.0.1:{self.clickhouse}/", params={"query": query}, timeout=20)
        answer.raise_for_status()
        return answer.text.strip()

    def count(self, table: str) -> int:
        return int(self.ask(f"SELECT count() FROM {table}"))


@contextmanager
def up(folder: Path, *words: str, ready_s: float = 90) -> Iterator[Up]:
    """`stagescope up` on `folder`; told to stop, and waited for, at the end."""
    grpc, http, clickhouse, pages = free_ports(4)
    argv = [sys.executable, "-m", "ui.cli", "up", "--store", str(folder), *words]
    argv += [
        "--otlp-grpc-port",
        str(grpc),
        "--otlp-http-port",
        str(http),
        "--clickhouse-port",
        str(clickhouse),
        "--ui-port",
        str(pages),
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = Up(process, folder, grpc, http, clickhouse, pages)
    try:
        wait_for(lambda: process.poll() is not None or answers(http), ready_s, "up answers")
        assert process.poll() is None, process.communicate()
        yield found
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def answers(port: int) -> bool:
    """Whether the OTLP door answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code < 500
    except httpx.TransportError:
        return False


def stagescope(*words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """One command, run to its end."""
    argv = [sys.executable, "-m", "ui.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    """Its one JSON document."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
