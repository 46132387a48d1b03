"""Two batches on their way into the store at one time: they overlap, are committed in order, and one that fails costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from ingest.errors import Unavailable
from ingest.ledger import Ledger
from ingest.log import LOGS, Message
from ingest.meter import Meter
from ingest.pipeline import Batch, Pipeline
from ingest.store import Store
from ingest.writer import write
from tests.ingest.otlp_samples import START_NS
from tests.ingest.test_pipeline import Replayed, batch, raw_spans


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store")) as opened:
        yield opened


def log_lines(number: int) -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for index in range(3):
        records.add(time_unix_nano=START_NS + number).body.string_value = f"line {number}.{index}"
    return request.SerializeToString()


def run_until_committed(pipeline: Pipeline, source: Replayed, offset: int) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=pipeline.run, args=(stop,), daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while source.committed < offset and thread.is_alive() and time.monotonic() < until:
        stop.wait(0.01)
    stop.set()
    thread.join(30)
    assert source.committed == offset


def test_while_a_batch_is_written_the_next_one_is_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def meet(*args: Any) -> Any:
        both.wait(20)  # breaks, and fails the run, when the second batch waits for the first
        return write(*args)

    monkeypatch.setattr("ingest.pipeline.write", meet)
    source = Replayed([batch(number) for number in range(4)], per_poll=1)
    run_until_committed(Pipeline(source, store, Meter(), Ledger(store), Batch(1, 0.01, 0.01)), source, 4)
    assert raw_spans(store) == 12


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_batch_that_fails_while_others_are_written_loses_and_doubles_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    tried: list[bytes] = []
    values = [
        log_lines(number) for number in (0, 1, 0, 2)
    ]  # the third is the first once more, by a client that retried

    def fail_once(where: Store, messages: Sequence[Message], *args: Any) -> Any:
        tried.append(messages[0].value)
        if tried.count(values[failing]) == 1 and messages[0].value == values[failing]:
            raise Unavailable("the disk is full", 0.0)
        return write(where, messages, *args)

    monkeypatch.setattr("ingest.pipeline.write", fail_once)
    source = Replayed(values, per_poll=1, topic=LOGS)
    run_until_committed(Pipeline(source, store, Meter(), Ledger(store), Batch(1, 0.01, 0.01)), source, 4)
    found = store.read("SELECT count() AS rows, uniqExact(Body) AS lines FROM otel_logs SETTINGS final = 0").iloc[0]
    assert (int(found["rows"]), int(found["lines"])) == (9, 9)
