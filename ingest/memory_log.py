"""The log of the embedded default: a bounded queue in this process.

Must stay true: `append` returns only after the pipeline has committed the bytes to the store, so nothing is held only in memory
after an answer of success.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from ingest.errors import Unavailable
from ingest.log import Message


class MemoryLog:
    """Both Sink and Source. At most `max_bytes` wait; `append` waits at most `wait_s` for the store."""

    def __init__(self, max_bytes: int = 128 << 20, wait_s: float = 20.0) -> None:
        self._max_bytes, self._wait_s = max_bytes, wait_s
        self._changed = threading.Condition()
        self._waiting: deque[Message] = deque()
        self._polled: deque[Message] = deque()
        self._bytes = 0
        self._first = time.time_ns() // 1000  # offsets of an earlier process never come back
        self._next: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._epoch = 0
        self._closed = False

    @property
    def epoch(self) -> int:
        return self._epoch

    def append(self, topic: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None) -> None:
        size = sum(map(len, values))
        with self._changed:
            if self._closed:
                raise Unavailable("the log is closing: send again a little later", 1.0)
            if self._bytes + size > self._max_bytes and self._bytes:
                raise Unavailable("the store is slower than what comes in and the queue is full: send again later", 2.0)
            now_ms = time.time_ns() // 1_000_000
            for value in values:
                offset = self._next.get(topic, self._first)
                self._next[topic] = offset + 1
                self._waiting.append(Message(topic, 0, offset, value, headers or {}, at_ms=now_ms))
            self._bytes += size
            last = self._next.get(topic, self._first) if values else 0
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._committed.get(topic, 0) >= last or self._closed, self._wait_s):
                raise Unavailable("the store has not taken this in time: send again", 2.0)
            if self._committed.get(topic, 0) < last:
                raise Unavailable("the log is closing: send again a little later", 1.0)

    def poll(self, timeout_s: float) -> Sequence[Message]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, timeout_s)
            found = list(self._waiting)
            self._waiting.clear()
            self._polled.extend(found)
            return found

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        with self._changed:
            for (topic, _), offset in offsets.items():
                self._committed[topic] = max(offset, self._committed.get(topic, 0))
            kept = [message for message in self._polled if message.offset >= self._committed.get(message.topic, 0)]
            self._bytes -= sum(len(message.value) for message in self._polled) - sum(len(m.value) for m in kept)
            self._polled = deque(kept)
            self._changed.notify_all()

    def rewind(self) -> None:
        with self._changed:
            self._waiting.extendleft(reversed(self._polled))
            self._polled.clear()
            self._epoch += 1

    def keep_alive(self) -> None:
        """Nothing to do: nobody else can take this log over."""

    def lag(self) -> int:
        with self._changed:
            return len(self._waiting)

    def close(self) -> None:
        """Turn away whoever still waits; their bytes were never acknowledged."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
