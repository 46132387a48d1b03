"""Where bytes wait between the receiver and the store. A Sink answers only when the bytes are safe; a Source forgets only on commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

TRACES, METRICS, LOGS = "otlp_spans", "otlp_metrics", "otlp_logs"
TOPICS = (TRACES, METRICS, LOGS)
# A header of our receiver's messages: the value is what `ingest.otlp.check` of this version made of a request.
CHECKED, CHECKED_VERSION = "stagescope-checked", "1"


@dataclass(frozen=True, slots=True)
class Message:
    """One export request as it stands in the log. `headers` may carry `content-type` (`application/x-protobuf` is meant without).

    `at_ms` is when the log got it, in ms since 1970 (0: unknown).
    """

    topic: str
    partition: int
    offset: int
    value: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def next_offset(self) -> int:
        """The offset to commit once this message is stored."""
        return self.offset + 1


class Source(Protocol):
    @property
    def epoch(self) -> int:
        """Grows whenever delivery starts again from what was committed: whoever holds messages of an older epoch drops them."""

    def poll(self, timeout_s: float) -> Sequence[Message]:
        """Messages in offset order per partition, or none after `timeout_s`. Raises Unavailable."""

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Forget everything below these next offsets, by (topic, partition). Raises Unavailable."""

    def rewind(self) -> None:
        """Deliver again, from what was committed, all that was polled since."""

    def keep_alive(self) -> None:
        """Stay a member of the group while the store is away; nothing new is fetched."""

    def lag(self) -> int:
        """How many messages wait behind the last polled one, as far as is known."""

    def close(self) -> None: ...


class Sink(Protocol):
    def append(self, topic: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None) -> None:
        """Return when the values, each with these headers, are safe.

        Raises Unavailable (try again later) and BadInput (this can never be kept).
        """

    def close(self) -> None: ...
