"""The memory log: the exam of every Source, and its own promise that an answer means stored."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ingest.errors import Unavailable
from ingest.log import TRACES, Sink, Source
from ingest.memory_log import MemoryLog
from tests.contracts import SourceExam, commit_all, in_background, poll_some


@pytest.fixture
def logs() -> Callable[[], tuple[Source, Sink]]:
    def make() -> tuple[Source, Sink]:
        log = MemoryLog()
        return log, log

    return make


class TestMemoryLog(SourceExam):
    """Nothing more than the exam."""


def test_append_answers_only_after_the_commit() -> None:
    log = MemoryLog()
    thread, trouble = in_background(log, TRACES, [b"a"])
    found = poll_some(log, 1)
    thread.join(0.2)
    assert thread.is_alive(), "answered before the commit"
    commit_all(log, found)
    thread.join(5)
    assert not thread.is_alive()
    assert not trouble


def test_a_full_queue_turns_away_and_takes_again_after_the_commit() -> None:
    log = MemoryLog(max_bytes=1000)
    in_background(log, TRACES, [bytes(900)])
    found = poll_some(log, 1)
    with pytest.raises(Unavailable, match="queue is full"):
        log.append(TRACES, [bytes(200)])
    commit_all(log, found)
    thread, trouble = in_background(log, TRACES, [bytes(200)])
    commit_all(log, poll_some(log, 1))
    thread.join(5)
    assert not trouble


def test_a_slow_store_is_told_to_the_sender() -> None:
    log = MemoryLog(wait_s=0.05)
    with pytest.raises(Unavailable, match="send again"):
        log.append(TRACES, [b"a"])


def test_close_lets_the_waiting_go_with_an_error() -> None:
    log = MemoryLog()
    thread, trouble = in_background(log, TRACES, [b"a"])
    poll_some(log, 1)
    log.close()
    thread.join(5)
    assert isinstance(trouble[0], Unavailable)
    with pytest.raises(Unavailable):
        log.append(TRACES, [b"b"])


def test_offsets_of_a_later_process_are_new() -> None:
    first, second = MemoryLog(), MemoryLog()
    in_background(first, TRACES, [b"a"])
    threading.Event().wait(0.001)
    offset = poll_some(first, 1)[0].offset
    third = MemoryLog()
    in_background(third, TRACES, [b"a"])
    assert poll_some(third, 1)[0].offset > offset
    assert second.lag() == 0
