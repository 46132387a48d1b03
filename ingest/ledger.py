"""What was not stored and why, and which offsets make up which block.

Must stay true: a block's ledger row is durable before its rows are, so a restart repeats the very same block under the same token.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message (or a part of one) that can never be stored: where it stood, a short countable `reason`, and its bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    value: bytes
