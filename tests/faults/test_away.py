"""The broker, the store or the disk is away for a while: everything resumes by itself, nothing is lost, nothing doubled."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.errors import Unavailable
from ingest.kafka_log import KafkaSink, KafkaSource
from ingest.kafka_place import kafka_place
from ingest.ledger import Ledger
from ingest.log import LOGS, TRACES, Sink
from ingest.meter import Meter
from ingest.pipeline import Batch, Pipeline, start_embedded
from ingest.store import Store
from tests.faults.consumer_process import consumer
from tests.faults.load import counted, logs, spans, written
from tests.faults.owner_process import store_owner
from tests.faults.processes import Process
from tests.faults.test_kill_consumer import group_url
from tests.kafka_broker import Broker, need_local_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a busy machine is slow, not wrong
QUICK = Batch(max_bytes=100_000, linger_s=0.05)


def until(reached: Callable[[], bool], timeout_s: float = 240.0) -> None:
    """Wait for a condition; fails when it does not come."""
    finish = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < finish, "it did not happen"
        threading.Event().wait(0.05)


def send(sink: Sink, numbers: range, tries_s: float = 200.0) -> None:
    """Append each request until it is taken, as a client does."""
    for number in numbers:
        for topic, value in ((TRACES, spans(number)), (LOGS, logs(number))):
            finish = time.monotonic() + tries_s
            while True:
                try:
                    sink.append(topic, [value])
                    break
                except Unavailable:
                    assert time.monotonic() < finish
                    threading.Event().wait(0.1)


@contextmanager
def running(pipeline: Pipeline) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=pipeline.run, args=(stop,), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.kafka
def test_the_broker_stops_and_starts(tmp_path: Path) -> None:
    need_local_kafka()
    broker = Broker(tmp_path / "kafka").start()
    url = group_url(broker.address, session_ms=6000)
    source, sink, meter = KafkaSource(kafka_place(url)), KafkaSink(kafka_place(url)), Meter()
    with Store.open(str(tmp_path / "store")) as store:
        with running(Pipeline(source, store, meter, Ledger(store), QUICK)):
            send(sink, range(1, 20))
            broker.kill()
            with pytest.raises(Unavailable):
                sink.append(LOGS, [logs(0)])
            broker.start()
            send(sink, range(20, 40))
            until(lambda: counted(store, "otel_traces") >= 39 * 20 and written(store, "otel_logs") >= 39 * 5)
        source.close()
        sink.close()
        broker.stop()
        assert counted(store, "otel_traces") == 39 * 20
        assert written(store, "otel_logs") in (39 * 5, 40 * 5), "only the append that was refused may have come through"


@pytest.mark.kafka
def test_the_store_stops_and_starts(kafka: str, tmp_path: Path) -> None:
    folder, url = str(tmp_path / "store"), group_url(kafka)
    owner = Process(store_owner, folder, 0)
    owner.ready()
    sink = KafkaSink(kafka_place(url))
    eater = Process(consumer, url, folder, 20_000, quick=True)
    send(sink, range(1, 60))
    eater.ready()
    owner.kill()
    send(sink, range(60, 80))
    owner = Process(store_owner, folder, 0)
    owner.ready()
    send(sink, range(80, 90))
    with Store.open(folder) as store:
        until(lambda: counted(store, "otel_traces") >= 89 * 20 and written(store, "otel_logs") >= 89 * 5)
        eater.stop()
        assert counted(store, "otel_traces") == 89 * 20
        assert written(store, "otel_logs") == 89 * 5
    sink.close()
    owner.stop()


@pytest.mark.kafka
def test_consumers_join_and_leave(kafka: str, tmp_path: Path) -> None:
    folder, url = str(tmp_path / "store"), group_url(kafka)
    owner = Process(store_owner, folder, 0)
    owner.ready()
    sink, members = KafkaSink(kafka_place(url)), []
    for turn in range(4):
        members.append(Process(consumer, url, folder, 10_000, quick=True))
        send(sink, range(100 * turn + 1, 100 * turn + 31))
        if turn == 1:
            members.pop(0).stop()
        elif turn == 2:
            members.pop(0).kill()
        send(sink, range(100 * turn + 31, 100 * turn + 41))
    with Store.open(folder) as store:
        until(lambda: counted(store, "otel_traces") >= 160 * 20 and counted(store, "otel_logs") >= 160 * 5)
        for member in members:
            member.stop()
        assert counted(store, "otel_traces") == 160 * 20
        assert counted(store, "otel_logs") == 160 * 5
    sink.close()
    owner.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no right to mount a small file system to fill")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(path: Path) -> None:
    """Write until the file system has no byte left."""
    with path.open("wb", buffering=0) as out, pytest.raises(OSError, match="No space"):  # noqa: PT012
        while True:
            out.write(bytes(4096))


def test_the_disk_is_full_for_a_while(small_disk: Path) -> None:
    with Store.open(str(small_disk / "store")) as store:
        meter = Meter()
        embedded = start_embedded(store, meter)
        send(embedded.sink, range(1, 6))
        ballast = small_disk / "ballast"
        fill(ballast)
        late = threading.Thread(target=send, args=(embedded.sink, range(6, 16)))
        late.start()
        until(lambda: meter.total("store_away") >= 2)
        assert late.is_alive()
        ballast.unlink()
        late.join(60)
        assert not late.is_alive()
        embedded.stop()
        assert counted(store, "otel_traces") == 15 * 20
        assert written(store, "otel_logs") == 15 * 5
