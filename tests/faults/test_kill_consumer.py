"""kill -9 of the consumer at random moments, with bad, late and repeated messages in the stream: counts are exact afterwards."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.kafka_log import KafkaSink, KafkaSource
from ingest.kafka_place import kafka_place
from ingest.log import LOGS, TRACES
from ingest.store import Store
from tests.faults.consumer_process import consumer
from tests.faults.load import HOUR_NS, POISON, counted, logs, spans, written
from tests.faults.owner_process import store_owner
from tests.faults.processes import Process
from tests.ingest.test_kafka_log import place, settled

KILLS = 20
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    folder = str(tmp_path / "store")
    owner = Process(store_owner, folder, 0)
    owner.ready()
    yield folder
    owner.stop()


def group_url(kafka: str, session_ms: int = 1000) -> str:
    """A fresh group that begins at the end of the topics as they stand."""
    group = uuid.uuid4().hex
    source = KafkaSource(place(kafka, group=group, initial_offset="latest"))
    settled(source)
    source.close()
    return f"kafka://{kafka}?group={group}&session_timeout_ms={session_ms}&heartbeat_interval_ms=200"


def produce(url: str, until: threading.Event) -> dict[str, int]:
    """Send requests until told to end; returns what must be stored."""
    sink = KafkaSink(kafka_place(url))
    expected, number = {"spans": 0, "logs": 0, "poison": 0}, 0
    while not until.wait(0.01):
        number += 1
        if number % 100 == 0:
            sink.append(TRACES, [POISON % number])
            expected["poison"] += 1
        elif number % 2:
            sink.append(LOGS, [logs(number)])
            expected["logs"] += 5
        else:
            times = 5 if number % 50 == 8 else 1
            sink.append(TRACES, [spans(number, late_ns=HOUR_NS if number % 9 == 0 else 0)] * times)
            expected["spans"] += 20
    sink.close()
    return expected


def test_counts_are_exact_after_twenty_kills(kafka: str, served: str) -> None:
    url, dice, done = group_url(kafka), random.Random(7), threading.Event()
    expected: dict[str, int] = {}
    producer = threading.Thread(target=lambda: expected.update(produce(url, done)))
    producer.start()
    with Store.open(served) as store:
        for _ in range(KILLS):
            child = Process(consumer, url, served, 4000, quick=True)
            child.ready()
            done.wait(dice.uniform(0.0, 0.3))
            child.kill()
        done.set()
        producer.join()
        last = Process(consumer, url, served, 20_000, quick=True)
        wait_while_it_grows(store, expected)
        last.stop()
        assert written(store, "otel_logs") == expected["logs"]
        assert counted(store, "otel_traces") == expected["spans"]
        assert counted(store, "dead_letters") == expected["poison"]
        assert int(store.value("SELECT uniqExact(SpanId) FROM otel_traces")) == expected["spans"]


def wait_while_it_grows(store: Store, expected: dict[str, int], patience_s: float = 60.0) -> None:
    """Until all is there, or nothing more has come for a while."""
    tables = {"otel_traces": "spans", "otel_logs": "logs", "dead_letters": "poison"}
    before, finish = {}, time.monotonic() + patience_s
    while time.monotonic() < finish:
        now = {name: counted(store, table) for table, name in tables.items()}
        if all(now[name] >= expected[name] for name in now):
            return
        if now != before:
            before, finish = now, time.monotonic() + patience_s
        threading.Event().wait(0.2)
