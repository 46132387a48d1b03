"""Messages from the log to rows in the store, in one block that can be repeated without counting anything twice.

Must stay true: a message that cannot be stored becomes a row of dead_letters, and only Unavailable is ever raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.exceptions import DatabaseError

from ingest.errors import BadInput, Unavailable
from ingest.ledger import DeadLetter
from ingest.log import CHECKED, CHECKED_VERSION, TRACES, Message
from ingest.otlp import PROTOBUF, REQUESTS, Options, check, decode
from ingest.otlp_clean import Reject
from ingest.otlp_decode import FORMAT, TABLE, count_spans, decode_settings
from ingest.store import Store

CONTENT_TYPE = "content-type"
DETAIL_BYTES = 500
CHUNK_BYTES = 16 << 20  # of requests decoded by ClickHouse in one insert
# Rows of one block are not merged while they are inserted (readers say final = 1, and merges come soon), and the text
# index is left to the merges: each would cost as much as all the rest.
INSERT_SETTINGS: Mapping[str, Any] = {
    "optimize_on_insert": 0,
    "exclude_materialize_skip_indexes_on_insert": "idx_span_items",
    "max_partitions_per_insert_block": 0,
}
# ClickHouse codes that say "not now", not "not this": memory, disk, parts, time, network, read-only, keeper, access, missing table.
PASSING = frozenset(
    {3, 60, 74, 75, 76, 81, 159, 160, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 279, 319, 394, 439, 497, 516}
    | {999, 1000, 1001, 1002}
)


@dataclass(frozen=True, slots=True)
class Written:
    """Of one block: rows stored, elements rejected, messages set aside. `letters` are the latter, already in dead_letters."""

    stored: int
    rejected: int
    dead: int
    letters: Sequence[DeadLetter] = ()


@dataclass(slots=True)
class _Block:
    """What a block's messages turned into: checked trace requests, rows of other tables, and what is not stored."""

    requests: list[tuple[bytes, int]] = field(default_factory=list)  # with the number of spans
    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    rejects: list[tuple[Message, Reject]] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)


def write(
    store: Store,
    messages: Sequence[Message],
    token: str,
    options: Options | None = None,
    pool: Executor | None = None,
) -> Written:
    """Store `messages`; the same `token` with the same messages stores them once. Raises Unavailable (nothing is lost).

    With a `pool` the parts of a large block go into the store side by side.
    """
    block = _Block()
    for message in messages:
        _read(message, block, options)
    try:
        stored = _insert(store, block, token, pool)
    except (DatabaseError, BadInput) as err:
        _raise_if_passing(err)
        stored = _insert_alone(store, messages, token, block, options)
    _insert_notes(store, block, token)
    rejected = sum(reject.count for _, reject in block.rejects)
    return Written(stored, rejected, len(block.letters), tuple(block.letters))


def encoding(message: Message) -> str:
    """PROTOBUF or JSON, by the message's content-type header; any other value as it stands."""
    named = message.headers.get(CONTENT_TYPE, PROTOBUF).split(";")[0].strip().lower()
    return {"": PROTOBUF, "application/protobuf": PROTOBUF}.get(named, named)


def letter(message: Message, reason: str, detail: str) -> DeadLetter:
    return DeadLetter(message.topic, message.partition, message.offset, reason, detail[:DETAIL_BYTES], message.value)


def _read(message: Message, block: _Block, options: Options | None) -> None:
    if message.topic not in REQUESTS:
        told = f"topic {message.topic!r} is none of {', '.join(REQUESTS)}"
        block.letters.append(letter(message, "unknown-topic", told))
        return
    try:
        rejects = _read_known(message, block, options)
    except BadInput as err:
        block.letters.append(letter(message, err.reason, str(err)))
        return
    block.rejects += [(message, reject) for reject in rejects]


def _read_known(message: Message, block: _Block, options: Options | None) -> Sequence[Reject]:
    if message.topic == TRACES:
        if message.headers.get(CHECKED) == CHECKED_VERSION and (spans := count_spans(message.value)) is not None:
            block.requests.append((message.value, spans))
            return ()
        checked = check(message.topic, message.value, encoding(message), options)
        block.requests.append((checked.clean, checked.accepted))
        return checked.rejects
    found = decode(message.topic, message.value, encoding(message), options)
    for name, rows in found.tables.items():
        block.tables[name].append(rows)
    return found.rejects


def _insert(store: Store, block: _Block, token: str, pool: Executor | None = None) -> int:
    work: list[Callable[[], int]] = []
    for number, requests in enumerate(_chunks(block.requests)):
        work.append(lambda part=requests, name=f"{token}:spans:{number}": _insert_spans(store, part, name))  # type: ignore[misc]
    for name, parts in block.tables.items():
        rows = pa.concat_tables(parts)
        work.append(lambda t=name, r=rows: store.insert(t, r, token=f"{token}:{t}", settings=INSERT_SETTINGS))  # type: ignore[misc]
    if pool is None or len(work) < 2:
        return sum(each() for each in work)
    return sum([future.result() for future in [pool.submit(each) for each in work]])


def _insert_spans(store: Store, requests: Sequence[tuple[bytes, int]], token: str) -> int:
    """Requests one after the other are one request, by the rules of protobuf; ClickHouse takes it apart."""
    body = b"".join(request for request, _ in requests)
    settings = {**INSERT_SETTINGS, **decode_settings(local=store.local)}
    try:
        store.insert_bytes(TABLE, FORMAT, body, token=token, settings=settings)
    except DatabaseError as err:
        _raise_if_passing(err)
        found = decode(TRACES, body).tables  # laid out in a way that ClickHouse does not read
        return sum(store.insert(name, rows, token=token, settings=INSERT_SETTINGS) for name, rows in found.items())
    return sum(spans for _, spans in requests)


def _chunks(requests: Sequence[tuple[bytes, int]]) -> Iterator[Sequence[tuple[bytes, int]]]:
    """Of about the same size, so that no small part is left over that must be merged."""
    whole = sum(len(request) for request, _ in requests)
    most = whole / max(1, round(whole / CHUNK_BYTES))
    chunk: list[tuple[bytes, int]] = []
    size = 0
    for request, spans in requests:
        if chunk and size + len(request) / 2 > most:
            yield chunk
            chunk, size = [], 0
        if spans:
            chunk.append((request, spans))
            size += len(request)
    if chunk:
        yield chunk


def _insert_alone(store: Store, messages: Sequence[Message], token: str, block: _Block, options: Options | None) -> int:
    """The store refused the block for a reason that lies in the data: find the message, keep its neighbours."""
    stored, block.rejects = 0, []
    refused = {(dead.topic, dead.partition, dead.offset) for dead in block.letters}
    for message in messages:
        if (message.topic, message.partition, message.offset) in refused:
            continue
        alone = _Block()
        _read(message, alone, options)
        try:
            stored += _insert(store, alone, f"{token}:{message.topic}:{message.partition}:{message.offset}")
            block.rejects += alone.rejects
        except (DatabaseError, BadInput) as err:
            _raise_if_passing(err)
            block.letters.append(letter(message, "store-refused", str(err)))
    return stored


def _raise_if_passing(err: DatabaseError | BadInput) -> None:
    """Trouble of the store, not of the data: the block must come again."""
    if isinstance(err, DatabaseError) and (err.code is None or err.code in PASSING):
        raise Unavailable(f"the store cannot take rows now: {str(err).strip()[:300]}", 2.0) from err


def _insert_notes(store: Store, block: _Block, token: str) -> None:
    try:
        if block.letters:
            store.insert("dead_letters", _letter_rows(block.letters), token=f"{token}:dead_letters")
        if block.rejects:
            store.insert("ingest_rejects", _reject_rows(block.rejects), token=f"{token}:ingest_rejects")
    except DatabaseError as err:
        raise Unavailable(f"the store cannot take dead letters now: {str(err).strip()[:300]}", 2.0) from err


def _letter_rows(letters: Sequence[DeadLetter]) -> pa.Table:
    return pa.table(
        {
            "Topic": [dead.topic for dead in letters],
            "Partition": pa.array([dead.partition for dead in letters], pa.int32()),
            "Offset": pa.array([dead.offset for dead in letters], pa.int64()),
            "Reason": [dead.reason for dead in letters],
            "Detail": [dead.detail for dead in letters],
            "Value": pa.array([dead.value for dead in letters], pa.binary()),
        }
    )


def _reject_rows(rejects: Sequence[tuple[Message, Reject]]) -> pa.Table:
    return pa.table(
        {
            "Topic": [message.topic for message, _ in rejects],
            "Partition": pa.array([message.partition for message, _ in rejects], pa.int32()),
            "Offset": pa.array([message.offset for message, _ in rejects], pa.int64()),
            "Source": ["log"] * len(rejects),
            "Reason": [reject.reason for _, reject in rejects],
            "Detail": [reject.detail for _, reject in rejects],
            "Count": pa.array([reject.count for _, reject in rejects], pa.uint64()),
        }
    )
