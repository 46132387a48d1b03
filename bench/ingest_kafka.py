"""The Kafka part of the ingest benchmark: a broker (given, or started from deploy/local-kafka) and a timed way through it."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ingest.kafka_log import KafkaSink, KafkaSource
from ingest.kafka_place import kafka_place
from ingest.ledger import Ledger
from ingest.log import Sink
from ingest.meter import Meter
from ingest.pipeline import Pipeline
from ingest.store import Store

LOCAL = Path(__file__).parent.parent / "deploy" / "local-kafka"
START_S = 120.0


@contextmanager
def broker(given: str, folder: Path) -> Iterator[str]:
    """`kafka://host:port` of `given` or of a broker started here; else a line that says why there is none."""
    if given:
        yield f"kafka://{given}"
        return
    if not shutil.which("java"):
        yield "no Java to run Kafka with; --kafka HOST:PORT names a broker"
        return
    if not (LOCAL / "target" / "lib").is_dir() and not shutil.which("mvn"):
        yield "no Maven to fetch Kafka with; --kafka HOST:PORT names a broker"
        return
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "kafka.log").open("wb") as told:
        process = subprocess.Popen(
            ["bash", str(LOCAL / "run"), str(port), str(folder / "data")], stdout=told, stderr=subprocess.STDOUT
        )
    try:
        yield f"kafka://127.0.0.1:{port}" if _answers(port, process) else "deploy/local-kafka did not start"
    finally:
        process.terminate()
        process.wait(30)


def kafka_rate(address: str, store: Store, hand_in: Callable[[Sink], float], spans: int) -> float:
    """Seconds from the first request until all `spans` are stored, sending and consuming side by side."""
    place = replace(kafka_place(address), group=f"bench-{secrets.token_hex(4)}")
    meter, stop = Meter(), threading.Event()
    source, sink = KafkaSource(place), KafkaSink(place)
    sink.append("otlp_logs", [])  # the topics are there before anybody subscribes
    pipeline = Pipeline(source, store, meter, Ledger(store))
    running = threading.Thread(target=pipeline.run, args=(stop,), name="bench-consumer")
    began = time.perf_counter()
    running.start()
    try:
        hand_in(sink)
        while meter.total("stored") < spans and time.perf_counter() - began < 600:
            stop.wait(0.02)
        return time.perf_counter() - began
    finally:
        stop.set()
        running.join(60)
        source.close()
        sink.close()


def _free_port() -> int:
    """A free port whose neighbour is free too (the controller's)."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:
            time.sleep(0.2)
    return False
