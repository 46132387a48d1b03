"""The one way in, whatever the door: check a request, put it into the log, and only then say that it was taken.

Must stay true: success is answered only after `Sink.append` returned, and the bytes at work at one time stay under a bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ingest.errors import BadInput, Unavailable
from ingest.log import CHECKED, CHECKED_VERSION, Sink
from ingest.otlp import Checked, Options, check
from ingest.otlp_split import split
from ingest.receiver_body import inflate

SAY_AT_MOST = 3  # reasons named in a partial-success message


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one request; `message` names the reasons of the rejects and is '' when there are none."""

    accepted: int
    rejected: int
    message: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes in bytes: a request after decompression, one message in the log, and everything at work at one time."""

    inflated_bytes: int
    message_bytes: int
    working_bytes: int


class Busy(Unavailable):
    """We have too much at work; HTTP answers 429, gRPC RESOURCE_EXHAUSTED with RetryInfo."""


class Counts(Protocol):
    """What is told of requests; ingest.meter.Meter keeps and shows it."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def text(self) -> str: ...


class Room:
    """Memory for requests at work. A request that does not fit is refused at once instead of queued."""

    def __init__(self, most_bytes: int) -> None:
        self._free = most_bytes
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, size: int) -> Iterator[Callable[[int], None]]:
        """Hold `size` bytes, and more with each call of what is yielded. Raises Busy when the room is full."""
        held = 0

        def grow(more: int) -> None:
            nonlocal held
            with self._lock:
                if more > self._free:
                    raise Busy("too much is at work already: send again a little later", 1.0)
                self._free -= more
                held += more

        try:
            grow(size)
            yield grow
        finally:
            with self._lock:
                self._free += held


class Intake:
    """Takes requests for a Sink. Thread-safe."""

    def __init__(self, sink: Sink, meter: Counts, bounds: Bounds, options: Options | None = None) -> None:
        self._sink = sink
        self._options = options
        self.room = Room(bounds.working_bytes)
        self.meter = meter
        self.bounds = bounds

    def take(self, topic: str, body: bytes, encoding: str, door: str, compression: str = "") -> Taken:
        """Keep a request; the caller holds room for `body`. Raises BadInput (never send it again) and Unavailable (send it again)."""
        try:
            with self.room.hold(0) as grow:
                plain = inflate(body, compression, self.bounds.inflated_bytes, grow)
                checked = check(topic, plain, encoding, self._options)
                if checked.accepted:
                    parts = split(topic, checked.clean, self.bounds.message_bytes)
                    self._sink.append(topic, parts, {CHECKED: CHECKED_VERSION})
        except BadInput as err:
            self.meter.count("refused_requests", topic=topic, door=door, reason=err.reason)
            raise
        except Unavailable:
            self.meter.count("turned_away_requests", topic=topic, door=door)
            raise
        self._count(topic, door, len(body), checked)
        return Taken(checked.accepted, checked.rejected, _message(checked))

    def _count(self, topic: str, door: str, size: int, checked: Checked) -> None:
        self.meter.count("received_requests", topic=topic, door=door)
        self.meter.count("received_bytes", size, topic=topic, door=door)
        self.meter.count("accepted", checked.accepted, topic=topic, door=door)
        for reject in checked.rejects:
            self.meter.count("rejected", reject.count, topic=topic, door=door, reason=reject.reason)


def _message(checked: Checked) -> str:
    told = [f"{reject.count} {reject.reason}: {reject.detail}" for reject in checked.rejects[:SAY_AT_MOST]]
    more = len(checked.rejects) - len(told)
    return "; ".join(told) + (f"; and {more} more reasons" if more > 0 else "")
