"""From the log to the store: poll, cut into blocks, write, and only then commit.

Must stay true: an offset is committed after its rows are durable, and a block that is written again has the same token as before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ingest.cutting import Cut, Cutter
from ingest.errors import Unavailable
from ingest.ledger import Ledger
from ingest.log import Message, Sink, Source
from ingest.memory_log import MemoryLog
from ingest.meter import Clockwork, Meter
from ingest.otlp import Options
from ingest.store import Store
from ingest.writer import write

LONGEST_WAIT_S = 10.0
_log = logging.getLogger("stagescope.pipeline")


@dataclass(frozen=True, slots=True)
class Batch:
    """How much is gathered for one turn: at most `max_bytes`, at most `linger_s` after the first message."""

    max_bytes: int = 32 << 20
    linger_s: float = 0.1
    idle_s: float = 0.5


class Seen:
    """Digests of the last `capacity` stored messages; a client's retry is the same bytes again."""

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._found: dict[bytes, None] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._found

    def add(self, digests: Sequence[bytes]) -> None:
        self._found.update(dict.fromkeys(digests))
        while len(self._found) > self._capacity:
            del self._found[next(iter(self._found))]


class Pipeline:
    """Moves messages from `source` to `store`. One thread calls `step` or `run`.

    `ledger` fixes block bounds for a log that outlives this process (Kafka); None for one that does not.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        meter: Meter,
        ledger: Ledger | None = None,
        batch: Batch | None = None,
        options: Options | None = None,
    ) -> None:
        self._source, self._store, self._meter = source, store, meter
        self._ledger, self._batch, self._options = ledger, batch or Batch(), options
        self._cutter = Cutter(ledger)
        self._seen = Seen()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="insert")
        self._clockwork = Clockwork(meter, store)
        self._epoch = source.epoch

    def step(self) -> int:
        """One turn; returns how many rows were stored. Raises Unavailable, after which everything uncommitted comes again."""
        try:
            cut = self._cutter.cut(self._gather())
            if self._ledger is not None:
                self._ledger.record([each.block for each in cut if not each.repeated])
            stored = sum(self._write(each) for each in cut)
            if cut:
                self._source.commit({(each.block.topic, each.block.partition): each.block.end for each in cut})
            self._note(cut)
            self._clockwork.tick()
        except Unavailable:
            self._meter.count("store_away")
            self._source.rewind()
            raise
        return stored

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop` is set; while the store or the log is away, wait and stay in the group."""
        wait_s = 0.0
        while not stop.is_set():
            try:
                self.step()
                wait_s = 0.0
            except Unavailable as err:
                wait_s = min(LONGEST_WAIT_S, max(err.retry_after_s, wait_s * 2))
                _log.warning("%s; again in %.0f s", err, wait_s)
                self._wait(stop, wait_s)

    def _gather(self) -> Sequence[Message]:
        """Messages of the present epoch: until the batch is full, the linger is over, or the log has no more."""
        gathered: list[Message] = []
        size, until = 0, time.monotonic() + self._batch.idle_s
        while size < self._batch.max_bytes and (left := until - time.monotonic()) > 0:
            found = self._source.poll(left)
            if self._source.epoch != self._epoch:
                self._epoch = self._source.epoch
                self._cutter.forget()
                gathered, size = [], 0
            if found and not gathered:
                until = time.monotonic() + self._batch.linger_s
            gathered += found
            size += sum(len(message.value) for message in found)
        return gathered

    def _write(self, cut: Cut) -> int:
        block, messages = cut.block, cut.messages
        fresh = {key: message for key, message in zip(cut.digests, messages, strict=True) if key not in self._seen}
        began = time.monotonic()
        topic = block.topic
        if fresh:
            written = write(self._store, list(fresh.values()), block.token, self._options, self._pool)
            self._meter.count("stored", written.stored, topic=topic)
            self._meter.count("rejected_rows", written.rejected, topic=topic)
            for letter in written.letters:
                self._meter.count("dead_letters", topic=topic, reason=letter.reason)
        self._seen.add(list(fresh))
        self._meter.count("blocks", topic=topic)
        self._meter.count("consumed_messages", len(messages), topic=topic)
        self._meter.count("duplicate_messages", len(messages) - len(fresh), topic=topic)
        self._meter.gauge("block_seconds", time.monotonic() - began, topic=topic)
        return written.stored if fresh else 0

    def _note(self, cut: Sequence[Cut]) -> None:
        self._meter.gauge("lag_messages", self._source.lag())
        if not cut:
            return
        now = time.time()
        self._meter.count("repeated_blocks", sum(each.repeated for each in cut))
        self._meter.gauge("last_stored_timestamp_seconds", now)
        oldest = min((message.at_ms for each in cut for message in each.messages if message.at_ms), default=0)
        if oldest:
            self._meter.gauge("freshness_seconds", max(0.0, now - oldest / 1000))

    def _wait(self, stop: threading.Event, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0 and not stop.wait(min(1.0, left)):
            try:
                self._source.keep_alive()
            except Unavailable as err:
                _log.debug("%s", err)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The pipeline of the embedded default, in a thread. `stop` ends it; what was acknowledged is stored."""

    sink: Sink
    stop: Callable[[], None]
    thread: threading.Thread


def start_embedded(store: Store, meter: Meter, options: Options | None = None) -> Embedded:
    """A memory log and its pipeline into `store`: hand `sink` to the receiver."""
    log = MemoryLog()
    pipeline = Pipeline(log, store, meter, options=options)
    stop = threading.Event()

    def run() -> None:
        try:
            pipeline.run(stop)
        finally:
            log.close()

    thread = threading.Thread(target=run, name="pipeline", daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(timeout=30)

    return Embedded(log, end, thread)
