"""Exams that every implementation of a noun must pass, whatever stands behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from ingest.errors import Unavailable
from ingest.log import LOGS, TRACES, Message, Sink, Source

TURNS, TURN_S = 100, 0.3


def poll_some(source: Source, count: int) -> list[Message]:
    """Poll until `count` messages came; fails when they do not."""
    found: list[Message] = []
    for _ in range(TURNS):
        epoch = source.epoch
        with suppress(Unavailable):
            polled = source.poll(TURN_S)
            found = [*polled] if source.epoch != epoch else [*found, *polled]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} messages came")


def in_background(sink: Sink, topic: str, values: Sequence[bytes]) -> tuple[threading.Thread, list[BaseException]]:
    """Append in a thread, because a log may answer only after the commit."""
    trouble: list[BaseException] = []

    def append() -> None:
        try:
            sink.append(topic, values)
        except Unavailable as err:
            trouble.append(err)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    return thread, trouble


def commit_all(source: Source, messages: Sequence[Message]) -> None:
    ends: dict[tuple[str, int], int] = {}
    for message in messages:
        key = (message.topic, message.partition)
        ends[key] = max(ends.get(key, 0), message.next_offset)
    try:
        source.commit(ends)
    except Unavailable:  # a coordinator may still be waking up
        source.commit(ends)


class SourceExam:
    """The battery for a Source and its Sink. A subclass gives `logs`: a maker of fresh pairs."""

    def test_bytes_come_back_in_order_per_partition(self, logs: Callable[[], tuple[Source, Sink]]) -> None:
        source, sink = logs()
        sent = [bytes([number]) * 100 for number in range(20)]
        waiting = [in_background(sink, TRACES, [value]) for value in sent]
        found = poll_some(source, 20)
        assert sorted(message.value for message in found) == sent
        for partition in {message.partition for message in found}:
            offsets = [message.offset for message in found if message.partition == partition]
            assert offsets == sorted(set(offsets))
        commit_all(source, found)
        for thread, trouble in waiting:
            thread.join(10)
            assert not thread.is_alive()
            assert not trouble

    def test_one_append_keeps_its_values_together_and_topics_apart(
        self, logs: Callable[[], tuple[Source, Sink]]
    ) -> None:
        source, sink = logs()
        in_background(sink, TRACES, [b"a", b"b"])
        in_background(sink, LOGS, [b"c"])
        found = poll_some(source, 3)
        assert sorted((message.topic, message.value) for message in found) == [
            (LOGS, b"c"),
            (TRACES, b"a"),
            (TRACES, b"b"),
        ]
        commit_all(source, found)

    def test_rewind_delivers_again_what_was_not_committed(self, logs: Callable[[], tuple[Source, Sink]]) -> None:
        source, sink = logs()
        in_background(sink, TRACES, [b"1", b"2", b"3"])
        first = poll_some(source, 3)
        one = [message for message in first if message.partition == first[0].partition][:1]
        commit_all(source, one)
        epoch = source.epoch
        source.rewind()
        again = poll_some(source, 2)
        assert source.epoch > epoch
        assert {(m.partition, m.offset, m.value) for m in again} == {
            (m.partition, m.offset, m.value) for m in first if m not in one
        }

    def test_keep_alive_fetches_nothing_and_loses_nothing(self, logs: Callable[[], tuple[Source, Sink]]) -> None:
        source, sink = logs()
        in_background(sink, TRACES, [b"x"])
        found = poll_some(source, 1)
        in_background(sink, TRACES, [b"y"])
        for _ in range(3):
            source.keep_alive()
        found += poll_some(source, 1)
        assert sorted(message.value for message in found) == [b"x", b"y"]

    def test_nothing_there_means_nothing_polled(self, logs: Callable[[], tuple[Source, Sink]]) -> None:
        source, _ = logs()
        assert list(source.poll(0.05)) == []
