"""The ledger gives back the blocks it was told; dead letters are listed, sent again once, and never lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ingest import dead_letters
from ingest.errors import BadInput, Unavailable
from ingest.ledger import Block, Ledger
from ingest.log import TRACES, Message
from ingest.store import Store
from ingest.writer import write


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("s"))) as opened:
        yield opened


@pytest.fixture(autouse=True)
def emptied(store: Store) -> None:
    store.command("TRUNCATE TABLE dead_letters")
    store.command("TRUNCATE TABLE ingest_ledger")


class Kept:
    """A sink that keeps, refuses what begins with `no`, and is away once it has `room` values."""

    def __init__(self, room: int = 10**6) -> None:
        self.values: list[bytes] = []
        self._room = room

    def append(self, topic: str, values: Sequence[bytes]) -> None:
        for value in values:
            if value.startswith(b"no"):
                raise BadInput("message-too-large")
            if len(self.values) >= self._room:
                raise Unavailable("away")
            self.values.append(value)

    def close(self) -> None: ...


def letters(store: Store, values: Sequence[bytes]) -> None:
    write(store, [Message(TRACES, 0, offset, value) for offset, value in enumerate(values)], "t")


def test_blocks_come_back_in_order_from_an_offset_on(store: Store) -> None:
    ledger = Ledger(store)
    blocks = [Block(TRACES, 0, first, first + 10, f"token {first}") for first in (20, 0, 10)]
    ledger.record(blocks)
    ledger.record([Block(TRACES, 1, 0, 5, "other partition")])
    ledger.record([])
    assert [block.first for block in ledger.blocks_from(TRACES, 0, 10)] == [10, 20]
    assert ledger.blocks_from(TRACES, 0, 30) == []
    assert ledger.blocks_from("otlp_logs", 0, 0) == []


def test_letters_are_listed_and_replayed_once(store: Store) -> None:
    bad = [b"\xff bad %d" % number for number in range(150)]
    letters(store, bad)
    listed = dead_letters.listing(store, most=1000)
    assert len(listed) == 150
    assert set(listed["Topic"]) == {TRACES}
    reason = str(listed["Reason"].iloc[0])
    assert len(dead_letters.listing(store, reason="no such reason")) == 0
    sink = Kept()
    assert dead_letters.replay(store, sink, reason=reason) == dead_letters.Replayed(150, 0)
    assert sorted(sink.values) == sorted(bad)
    assert dead_letters.replay(store, sink) == dead_letters.Replayed(0, 0)
    assert len(dead_letters.listing(store)) == 0
    assert len(dead_letters.listing(store, most=1000, replayed=True)) == 150


def test_what_the_log_refuses_again_stays_and_does_not_stop_the_rest(store: Store) -> None:
    letters(store, [b"no \xff", b"\xff 1", b"\xff 2"])
    sink = Kept()
    assert dead_letters.replay(store, sink) == dead_letters.Replayed(2, 1)
    assert len(dead_letters.listing(store)) == 1


def test_a_replay_that_is_cut_off_can_be_repeated(store: Store) -> None:
    letters(store, [b"\xff %d" % number for number in range(130)])
    with pytest.raises(Unavailable):
        dead_letters.replay(store, Kept(room=110))
    rest = Kept()
    dead_letters.replay(store, rest)
    assert len(rest.values) == 30
    assert len(dead_letters.listing(store)) == 0
