"""What was not stored and why, and which offsets make up which block.

Must stay true: a block's ledger row is durable before its rows are, so a restart repeats the very same block under the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from clickhouse_connect.driver.exceptions import DatabaseError

from ingest.errors import Unavailable
from ingest.store import Store

OPEN = """
SELECT FirstOffset, Offset, Token FROM ingest_ledger
WHERE Topic = {topic:String} AND Partition = {partition:Int32} AND Offset > {first:Int64}
ORDER BY FirstOffset, Offset LIMIT 10000
"""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message (or a part of one) that can never be stored: where it stood, a short countable `reason`, and its bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """The messages [first, end) of one partition, stored under `token`."""

    topic: str
    partition: int
    first: int
    end: int
    token: str


class Ledger:
    """The blocks of the log, in `ingest_ledger`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def blocks_from(self, topic: str, partition: int, first: int) -> Sequence[Block]:
        """Blocks already begun at or after offset `first`, in order. Raises Unavailable."""
        rows = self._store.read(OPEN, topic=topic, partition=partition, first=first)
        return (
            [
                Block(topic, partition, int(start), int(end), str(token))
                for start, end, token in zip(*(rows[name] for name in ("FirstOffset", "Offset", "Token")), strict=True)
            ]
            if len(rows)
            else []
        )

    def record(self, blocks: Sequence[Block]) -> None:
        """Fix the bounds of `blocks` before their rows are written. Raises Unavailable."""
        if not blocks:
            return
        rows = pa.table(
            {
                "Topic": [block.topic for block in blocks],
                "Partition": pa.array([block.partition for block in blocks], pa.int32()),
                "FirstOffset": pa.array([block.first for block in blocks], pa.int64()),
                "Offset": pa.array([block.end for block in blocks], pa.int64()),
                "Token": [block.token for block in blocks],
            }
        )
        try:
            self._store.insert("ingest_ledger", rows)
        except DatabaseError as err:
            raise Unavailable(f"the store cannot take a ledger row now: {str(err).strip()[:300]}", 2.0) from err
