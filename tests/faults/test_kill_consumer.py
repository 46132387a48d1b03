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

KILLS, MESSAGES = 20, 400
pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    folder = str(tmp_path / "store")
    owner = Process(store_owner, folder, 0)
    owner.ready()
    yield folder
    owner.stop()


def group_url(kafka: str, session_ms: int = 1500) -> str:
    """A fresh group that begins at the end of the topics as they stand."""
    group = uuid.uuid4().hex
    source = KafkaSource(place(kafka, group=group, initial_offset="latest"))
    settled(source)
    source.close()
    return f"kafka://{kafka}?group={group}&session_timeout_ms={session_ms}&heartbeat_interval_ms=300"


def produce(url: str, until: threading.Event) -> dict[str, int]:
    """Send MESSAGES requests over the life of the test; returns what must be stored."""
    sink = KafkaSink(kafka_place(url))
    expected = {"spans": 0, "logs": 0, "poison": 0}
    for number in range(1, MESSAGES + 1):
        if number % 100 == 0:
            sink.append(TRACES, [POISON % number])
            expected["poison"] += 1
        elif number % 10 == 3:
            sink.append(LOGS, [logs(number)])
            expected["logs"] += 5
        else:
            times = 5 if number % 50 == 7 else 1
            sink.append(TRACES, [spans(number, late_ns=HOUR_NS if number % 9 == 0 else 0)] * times)
            expected["spans"] += 20
        until.wait(0.05)
    sink.close()
    return expected


def test_counts_are_exact_after_twenty_kills(kafka: str, served: str) -> None:
    url, dice, done = group_url(kafka), random.Random(7), threading.Event()
    expected: dict[str, int] = {}
    producer = threading.Thread(target=lambda: expected.update(produce(url, done)))
    producer.start()
    with Store.open(served) as store:
        for kill in range(KILLS):
            child = Process(consumer, url, served, 20_000, quick=True)
            child.ready()
            done.wait(dice.uniform(0.0, 1.5) if kill % 4 else dice.uniform(1.5, 2.5))
            child.kill()
        done.set()
        producer.join()
        last = Process(consumer, url, served, 20_000, quick=True)
        last.ready()
        finish = time.monotonic() + 60
        while time.monotonic() < finish and not arrived(store, expected):
            threading.Event().wait(0.1)
        last.stop()
        assert counted(store, "otel_traces") == expected["spans"]
        assert written(store, "otel_logs") == expected["logs"]
        assert counted(store, "dead_letters") == expected["poison"]
        assert int(store.value("SELECT uniqExact(SpanId) FROM otel_traces")) == expected["spans"]


def arrived(store: Store, expected: dict[str, int]) -> bool:
    tables = {"otel_traces": "spans", "otel_logs": "logs", "dead_letters": "poison"}
    return all(counted(store, table) >= expected[name] for table, name in tables.items())
