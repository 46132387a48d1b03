"""A message that stands twice in the log while its first copy is on its way into the store: stored once, whatever fails between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import Unavailable
from ingest.ledger import Ledger
from ingest.log import LOGS, TRACES, Message
from ingest.memory_log import MemoryLog
from ingest.meter import Meter
from ingest.pipeline import Batch, Pipeline
from ingest.store import Store
from ingest.writer import write
from tests.contracts import in_background
from tests.ingest.test_pipeline import batch
from tests.ingest.test_pipeline_flights import log_lines


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store")) as opened:
        yield opened


class Partitions:
    """Two partitions. `polls`: what each poll delivers, from the start and after each rewind."""

    def __init__(self, *polls: list[list[Message]]) -> None:
        self.plan, self.epoch = polls, 0
        self.waiting = list(polls[0])
        self.committed: dict[tuple[str, int], int] = {}

    def poll(self, timeout_s: float) -> list[Message]:
        if not self.waiting:
            time.sleep(min(timeout_s, 0.005))
            return []
        return [m for m in self.waiting.pop(0) if m.offset >= self.committed.get((m.topic, m.partition), 0)]

    def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        self.committed.update(offsets)

    def rewind(self) -> None:
        self.epoch += 1
        self.waiting = list(self.plan[min(self.epoch, len(self.plan) - 1)])

    def keep_alive(self) -> None: ...

    def lag(self) -> int:
        return 0


def run_until(pipeline: Pipeline, done: Callable[[], bool]) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=pipeline.run, args=(stop,), daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not done() and thread.is_alive() and time.monotonic() < until:
        stop.wait(0.01)
    stop.set()
    thread.join(30)
    assert done()


def count(store: Store, table: str) -> int:
    return int(store.command(f"SELECT count() FROM {table}"))


@pytest.mark.parametrize(("topic", "table"), [(LOGS, "otel_logs"), (TRACES, "otel_traces")])
def test_a_retry_in_another_partition_is_not_left_out_while_its_first_copy_may_fail(
    store: Store, monkeypatch: pytest.MonkeyPatch, topic: str, table: str
) -> None:
    make = log_lines if topic == LOGS else batch
    first = Message(topic, 0, 0, make(1))
    retry, other = Message(topic, 1, 0, make(1)), Message(topic, 1, 1, make(2))
    source = Partitions([[first], [retry, other]], [[retry, other], [first]])
    failed: list[Message] = []
    second = threading.Event()

    def fail_first(where: Store, messages: Sequence[Message], *args: Any) -> Any:
        if messages[0] == first and not failed:
            failed.append(first)
            second.wait(1)
            raise Unavailable("too many parts", 0.0)
        written = write(where, messages, *args)
        second.set()
        return written

    monkeypatch.setattr("ingest.pipeline.write", fail_first)
    run_until(
        Pipeline(source, store, Meter(), Ledger(store), Batch(1, 0.01, 0.01)),
        lambda: source.committed == {(topic, 0): 1, (topic, 1): 2},
    )
    assert count(store, table) == 6


def test_what_was_stored_of_a_batch_that_failed_later_is_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other, retry = (
        Message(LOGS, 0, 0, log_lines(1)),
        Message(LOGS, 1, 0, log_lines(2)),
        Message(LOGS, 1, 1, log_lines(1)),
    )
    source = Partitions([[first, other, retry]], [[other, retry, first]])
    failed: list[str] = []

    def fail_second_partition(where: Store, messages: Sequence[Message], *args: Any) -> Any:
        if messages[0].partition == 1 and not failed:
            failed.append("once")
            raise Unavailable("the disk is full", 0.0)
        return write(where, messages, *args)

    monkeypatch.setattr("ingest.pipeline.write", fail_second_partition)
    run_until(
        Pipeline(source, store, Meter(), Ledger(store), Batch(1 << 20, 0.01, 0.01)),
        lambda: len(source.committed) == 2,
    )
    assert count(store, "otel_logs") == 6


def test_waiting_for_a_free_writer_costs_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    log, go_on, stop = MemoryLog(), threading.Event(), threading.Event()
    polls: list[float] = []
    poll = log.poll
    monkeypatch.setattr(log, "poll", lambda timeout_s: (polls.append(timeout_s), poll(timeout_s))[1])

    def held(*args: Any) -> Any:
        go_on.wait(10)
        return write(*args)

    monkeypatch.setattr("ingest.pipeline.write", held)
    thread = threading.Thread(target=Pipeline(log, store, Meter()).run, args=(stop,), daemon=True)
    thread.start()
    senders = []
    for number in range(2):
        senders.append(in_background(log, TRACES, [batch(number)])[0])
        time.sleep(0.4)
    time.sleep(0.4)
    polls.clear()
    time.sleep(0.5)
    seen = len(polls)
    go_on.set()
    for sender in senders:
        sender.join(20)
    stop.set()
    thread.join(20)
    assert seen < 150
    assert count(store, "otel_traces") == 6
