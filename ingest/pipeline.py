"""From the log to the store: poll, cut into blocks, write, and only then commit; while blocks are written, the next are gathered.

Must stay true: an offset is committed after its rows and those of all offsets before it are durable, and a block that is written
again has the same token as before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
IN_FLIGHT = 2  # batches written at one time: one waits for the disk or for sorting while another decodes
WORTH_A_WRITER = 0.25  # of a full batch
LOOK_S = 0.01  # between two looks at the batches in flight while waiting for messages
_log = logging.getLogger("stagescope.pipeline")


@dataclass(frozen=True, slots=True)
class Batch:
    """How much is gathered for one turn: about `max_bytes`, at most `linger_s` after the first message if the store is idle."""

    max_bytes: int = 16 << 20
    linger_s: float = 0.1
    idle_s: float = 0.5


class Seen:
    """Digests of the last `capacity` stored messages; a client's retry is the same bytes again."""

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._found: dict[bytes, None] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._found

    def add(self, digests: Iterable[bytes]) -> None:
        self._found.update(dict.fromkeys(digests))
        while len(self._found) > self._capacity:
            del self._found[next(iter(self._found))]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A batch on its way into the store: its blocks, the digests of what it writes and of what is durable already, the epoch of
    its messages. `durable` is read once `stored` is done."""

    cuts: Sequence[Cut]
    claimed: Mapping[bytes, None]
    durable: Sequence[bytes]
    stored: Future[int]
    epoch: int


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
        self._writers = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="write")
        self._flights: deque[_Flight] = deque()
        self._clockwork = Clockwork(meter, store)
        self._epoch = source.epoch

    def step(self) -> int:
        """Gather, write, commit; returns how many rows were stored. Raises Unavailable, after which everything uncommitted comes again."""
        try:
            self._turn()
            return sum(self._land() for _ in range(len(self._flights)))
        except Unavailable:
            self._start_again()
            raise

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop` is set, gathering while earlier batches are written; while the store or the log is away, wait and
        stay in the group."""
        try:
            self._run(stop)
        finally:
            wait([flight.stored for flight in self._flights])  # whoever closes the store next finds nobody writing

    def _run(self, stop: threading.Event) -> None:
        wait_s = 0.0
        while not stop.is_set():
            try:
                self._turn()
                wait_s = 0.0
            except Unavailable as err:
                self._start_again()
                wait_s = min(LONGEST_WAIT_S, max(err.retry_after_s, wait_s * 2))
                _log.warning("%s; again in %.0f s", err, wait_s)
                self._wait(stop, wait_s)
        try:
            while self._flights:
                self._land()
        except Unavailable as err:
            self._start_again()
            _log.warning("%s; what was not committed comes again", err)

    def _turn(self) -> None:
        gathered = self._gather()
        while len(self._flights) >= IN_FLIGHT:
            self._land()
        self._begin(gathered)
        self._meter.gauge("lag_messages", self._source.lag())
        self._clockwork.tick()

    def _gather(self) -> Sequence[Message]:
        """Messages of the present epoch: until the batch is full, or the linger is over and nothing is in flight (for a large
        batch: at most one other is). Batches that are stored meanwhile are committed."""
        gathered: list[Message] = []
        size, until = 0, time.monotonic() + self._batch.idle_s
        while size < self._batch.max_bytes:
            while self._flights and self._flights[0].stored.done():
                self._land()
            left = until - time.monotonic()
            if left <= 0 and self._may_begin(size):
                break
            found = self._source.poll((min(left, LOOK_S) if left > 0 else LOOK_S) if self._flights else left)
            if self._source.epoch != self._epoch:
                self._epoch = self._source.epoch
                self._cutter.forget()
                gathered, size = [], 0
            if found and not gathered:
                until = time.monotonic() + self._batch.linger_s
            gathered += found
            size += sum(len(message.value) for message in found)
        return gathered

    def _may_begin(self, size: int) -> bool:
        """A second batch beside one in flight must be worth it: small ones would only make many small parts to merge."""
        worth = size >= self._batch.max_bytes * WORTH_A_WRITER
        return not self._flights or (worth and len(self._flights) < IN_FLIGHT)

    def _begin(self, gathered: Sequence[Message]) -> None:
        """Cut into blocks, note their bounds, and hand what was not seen before to a writer."""
        cuts = self._cutter.cut(gathered)
        if not cuts:
            return
        while any(key in flight.claimed for flight in self._flights for cut in cuts for key in cut.digests):
            self._land()  # a repeat is left out of its block (whose token names it) only when its first copy is durable
        if self._ledger is not None:
            self._ledger.record([each.block for each in cuts if not each.repeated])
        claimed: dict[bytes, None] = {}
        work: list[tuple[Cut, Mapping[bytes, Message]]] = []
        for cut in cuts:
            pairs = zip(cut.digests, cut.messages, strict=True)
            fresh = {key: message for key, message in pairs if key not in self._seen and key not in claimed}
            claimed |= dict.fromkeys(fresh)
            work.append((cut, fresh))
        durable: list[bytes] = []

        def store() -> int:
            rows = 0
            for cut, fresh in work:
                rows += self._write(cut, list(fresh.values()))
                durable.extend(fresh)
            return rows

        self._flights.append(_Flight(cuts, claimed, durable, self._writers.submit(store), self._epoch))

    def _land(self) -> int:
        """Wait for the oldest batch in flight and commit it. Raises Unavailable."""
        flight = self._flights[0]
        stored = flight.stored.result()
        self._seen.add(flight.durable)
        if flight.epoch == self._source.epoch:  # else it comes again, as messages that were seen
            ends = {(cut.block.topic, cut.block.partition): cut.block.end for cut in flight.cuts}
            self._source.commit(ends)
        self._flights.popleft()
        self._note(flight.cuts)
        return stored

    def _start_again(self) -> None:
        """Wait for what is in flight, keep in mind what got through, and have everything uncommitted come again."""
        self._meter.count("store_away")
        wait([flight.stored for flight in self._flights])
        for flight in self._flights:
            self._seen.add(flight.durable)
        self._flights.clear()
        self._source.rewind()

    def _write(self, cut: Cut, fresh: Sequence[Message]) -> int:
        began = time.monotonic()
        topic, stored = cut.block.topic, 0
        if fresh:
            written = write(self._store, fresh, cut.block.token, self._options, self._pool)
            stored = written.stored
            self._meter.count("stored", written.stored, topic=topic)
            self._meter.count("rejected_rows", written.rejected, topic=topic)
            for letter in written.letters:
                self._meter.count("dead_letters", topic=topic, reason=letter.reason)
        self._meter.count("blocks", topic=topic)
        self._meter.count("consumed_messages", len(cut.messages), topic=topic)
        self._meter.count("duplicate_messages", len(cut.messages) - len(fresh), topic=topic)
        self._meter.gauge("block_seconds", time.monotonic() - began, topic=topic)
        return stored

    def _note(self, cut: Sequence[Cut]) -> None:
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
