"""A real Apache Kafka for tests: the one in STAGESCOPE_TEST_KAFKA, else one started from deploy/local-kafka."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "deploy" / "local-kafka"
START_S = 60.0


class Broker:
    """A broker process of ours on free ports; `stop` and `start` keep its data. `kill` is kill -9."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = _two_free_ports()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Broker:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "out.txt").open("ab") as out:
            self._process = subprocess.Popen(
                ["bash", str(FOLDER / "run"), str(self.port), str(self._folder)], stdout=out, stderr=out
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            if _answers(self.port):
                return self
            threading.Event().wait(0.05)
        said = (self._folder / "out.txt").read_text()[-2000:]
        raise AssertionError(f"the broker did not start: {said}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None


def outside_broker() -> str:
    """The broker that STAGESCOPE_TEST_KAFKA names, or ''."""
    return os.environ.get("STAGESCOPE_TEST_KAFKA", "")


def need_local_kafka() -> None:
    """Skip unless Kafka can be started here; fetches it with Maven the first time."""
    if shutil.which("java") is None:
        pytest.skip("no Java to run Kafka with, and STAGESCOPE_TEST_KAFKA names no broker")
    if (FOLDER / "target" / "lib").is_dir():
        return
    if shutil.which("mvn") is None:
        pytest.skip("no Maven to fetch Kafka with, and STAGESCOPE_TEST_KAFKA names no broker")
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(FOLDER / "pom.xml"), "dependency:copy-dependencies"],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(FOLDER / "target" / "lib", ignore_errors=True)
        pytest.skip(f"Maven could not fetch Kafka: {done.stdout.strip()[-300:]}")


def _two_free_ports() -> int:
    """The first of two neighbouring free ports."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
