"""Cuts what was polled into blocks, and cuts what comes again exactly where it was cut before.

Must stay true: the same messages give the same token, and other messages never do, even when a topic was made anew.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ingest.ledger import Block, Ledger
from ingest.log import Message

PATIENCE_S = 5.0


class Cut(NamedTuple):
    """A block, its messages, whether it stood in the ledger already, and a digest of each message."""

    block: Block
    messages: Sequence[Message]
    repeated: bool
    digests: Sequence[bytes]


class Cutter:
    """Holds back the messages of a begun block until all of it is there, at most `PATIENCE_S`."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._held: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self._since: dict[tuple[str, int], float] = {}
        self._begun: dict[tuple[str, int], list[Block]] = {}

    def forget(self) -> None:
        """Delivery begins again from what was committed."""
        self._held.clear()
        self._since.clear()
        self._begun.clear()

    def cut(self, messages: Sequence[Message]) -> Sequence[Cut]:
        """Blocks of `messages` and of those held back before, in offset order per partition. Raises Unavailable."""
        now = time.monotonic()
        for message in messages:
            key = (message.topic, message.partition)
            self._held[key].append(message)
            self._since[key] = now
        return [cut for key in list(self._held) for cut in self._cut_one(key, now)]

    def _cut_one(self, key: tuple[str, int], now: float) -> Sequence[Cut]:
        held, cuts = self._held.pop(key), []
        while held:
            first, begun = held[0].offset, self._plan(key, held[0].offset)
            known = next((block for block in begun if block.first == first), None)
            border = known.end if known else min((block.first for block in begun if block.first > first), default=None)
            taken = [message for message in held if border is None or message.offset < border]
            whole = known is None or len(taken) < len(held) or taken[-1].next_offset >= known.end
            if not whole and now - self._since[key] < PATIENCE_S:
                break
            held = held[len(taken) :]
            end = known.end if known and whole else taken[-1].next_offset
            found = digests(taken)
            block = Block(*key, first, end, self._token(key, first, end, found))
            cuts.append(Cut(block, taken, known is not None and known.token == block.token, found))
            self._begun[key] = [later for later in begun if later.first >= end]
        if held:
            self._held[key] = held
        return cuts

    def _plan(self, key: tuple[str, int], first: int) -> list[Block]:
        if self._ledger is None:
            return []
        if key not in self._begun:
            self._begun[key] = list(self._ledger.blocks_from(*key, first))
        return self._begun[key]

    def _token(self, key: tuple[str, int], first: int, end: int, found: Sequence[bytes]) -> str:
        content = hashlib.blake2b(b"".join(found), digest_size=12).hexdigest()
        return f"{key[0]}:{content}" if self._ledger is None else f"{key[0]}:{key[1]}:{first}-{end}:{content}"


def digests(messages: Sequence[Message]) -> list[bytes]:
    """One digest a message, of topic and bytes."""
    return [
        hashlib.blake2b(message.value, digest_size=16, key=message.topic.encode()[:64]).digest() for message in messages
    ]
