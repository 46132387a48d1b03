"""Messages that could not be stored: look at them, and send them again once the cause is mended.

Must stay true: a letter is marked as replayed only after the log has its bytes again, and it is never removed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa

from ingest.errors import BadInput
from ingest.log import Sink
from ingest.store import Store

LIST = """
SELECT ReceivedAt, Topic, Partition, Offset, Reason, Detail, length(Value) AS Bytes, toValidUTF8(substring(Value, 1, 80)) AS Begins, ReplayedAt
FROM dead_letters
WHERE ({reason:String} = '' OR Reason = {reason:String}) AND ({replayed:UInt8} OR ReplayedAt IS NULL)
ORDER BY ReceivedAt DESC, Topic, Partition, Offset DESC
LIMIT {most:UInt32}
"""
TAKE = """
SELECT ReceivedAt, Topic, Partition, Offset, Reason, Detail, base64Encode(Value) AS Encoded
FROM dead_letters
WHERE ({reason:String} = '' OR Reason = {reason:String}) AND ReplayedAt IS NULL
  AND (Topic, Partition, Offset, Reason) > ({topic:String}, {partition:Int32}, {offset:Int64}, {last:String})
ORDER BY Topic, Partition, Offset, Reason
LIMIT {most:UInt32}
"""
PAGE = 100
PLACE = {"topic": "Topic", "partition": "Partition", "offset": "Offset", "last": "Reason"}


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters went into the log again, and how many it refused."""

    sent: int
    refused: int


def listing(store: Store, reason: str = "", most: int = 100, *, replayed: bool = False) -> pd.DataFrame:
    """The latest letters: when, where, why, size and first bytes; with `replayed` also those sent again."""
    return store.read(LIST, reason=reason, most=most, replayed=int(replayed))


def replay(store: Store, sink: Sink, reason: str = "", most: int = 1_000_000) -> Replayed:
    """Send letters (of one reason, or all) into `sink`. Raises Unavailable; what was marked by then stays marked.

    A message that is refused again becomes a new letter at its new place in the log.
    """
    sent = refused = 0
    after: dict[str, Any] = {"topic": "", "partition": -1, "offset": -1, "last": ""}
    while sent + refused < most:
        page = store.read_arrow(TAKE, reason=reason, most=min(PAGE, most - sent - refused), **after).to_pylist()
        if not page:
            break
        gone = [letter for letter in page if _send(sink, letter)]
        if gone:
            store.insert("dead_letters", _marked(gone))
        sent, refused = sent + len(gone), refused + len(page) - len(gone)
        last = page[-1]
        after = {name: last[column] for name, column in PLACE.items()}
    return Replayed(sent, refused)


def _send(sink: Sink, letter: Mapping[str, Any]) -> bool:
    try:
        sink.append(letter["Topic"], [base64.b64decode(letter["Encoded"])])
    except BadInput:
        return False
    return True


def _marked(letters: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The same rows, which replace themselves, with the time of the replay."""
    names = ("ReceivedAt", "Topic", "Partition", "Offset", "Reason", "Detail")
    rows = pa.Table.from_pylist([{name: letter[name] for name in names} for letter in letters])
    values = pa.array([base64.b64decode(letter["Encoded"]) for letter in letters], pa.binary())
    now = pa.array([datetime.now(UTC)] * len(letters), pa.timestamp("ms", "UTC"))
    return rows.append_column("Value", values).append_column("ReplayedAt", now)
