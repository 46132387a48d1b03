"""`stagescope ingest`: files and folders of any known format into the Collector's tables.

Must stay true: the same file twice changes nothing (blocks carry tokens made of their bytes), and a bad part costs only itself.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import pandas as pd
import pyarrow as pa

from ingest import formats_jaeger, formats_langfuse, formats_spans, formats_zipkin, log, otlp_mask
from ingest.errors import BadInput
from ingest.files_kind import OTLP_TOPICS, classify, protobuf_topic
from ingest.files_read import Document, Fault, documents, open_bytes
from ingest.formats import Gathered
from ingest.otlp import Decoded, Options, decode, decode_document, decode_request
from ingest.settings import Settings
from ingest.store import Store

SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".otlp", ".proto", ".txt", ".gz")
CONVERT: Mapping[str, Callable[[Sequence[object]], Gathered]] = MappingProxyType(
    {
        "jaeger": formats_jaeger.to_request,
        "zipkin": formats_zipkin.to_request,
        "langfuse": formats_langfuse.to_request,
        "spans": formats_spans.to_request,
    }
)
BATCH_BYTES = 16 << 20
BATCH_DOCUMENTS = 20_000
LEDGER = "files"


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file: its format, elements read (spans, log records, metric points), rows stored, what was refused by reason.

    `error` says in one line why the file as a whole was not (fully) read; empty when it was. `skipped` says why a file
    that only happened to lie in a folder is none of ours; nobody asked for it by name, so that is no error.
    """

    path: str
    format: str
    spans: int
    stored: int
    rejected: Mapping[str, int]
    error: str = ""
    skipped: str = ""


@dataclass(slots=True)
class _File:
    """What is known of the file in work, and the batch that waits to be stored."""

    path: str
    formats: list[str] = field(default_factory=list)
    read: int = 0
    stored: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)
    waiting: list[Document] = field(default_factory=list)
    waiting_kind: str = ""
    waiting_bytes: int = 0

    def reject(self, reason: str, detail: str, count: int = 1) -> None:
        self.rejected[reason] += count
        self.details.setdefault(reason, detail)


def ingest_paths(paths: Sequence[str], store: Store, settings: Settings | None = None) -> Iterator[FileReport]:
    """Store files, folders (recursive) and `-` (standard input); one report each, in order, as soon as it is done.

    A file that cannot be read is a report with `error`, and so is a folder without any trace file. Raises Unavailable when
    the store is away.
    """
    chosen = settings or Settings()
    options = Options(mask=otlp_mask.mask(chosen.mask_users, chosen.mask_prompts, chosen.mask_salt))
    for path in paths:
        if path == "-" or not os.path.isdir(path):
            yield _ingest(path, store, chosen.max_inflated_bytes, options)
            continue
        found = False
        for inner in _within(path):
            report = _ingest(inner, store, chosen.max_inflated_bytes, options, named=False)
            found |= not report.skipped
            yield report
        if not found:
            yield FileReport(path, "", 0, 0, {}, f"no trace file in this folder (looked at {', '.join(SUFFIXES)})")


def _within(path: str) -> Iterator[str]:
    """The files in a folder and below that have a known ending, sorted."""
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and name[0] != ".")


def _ingest(path: str, store: Store, most_bytes: int, options: Options, *, named: bool = True) -> FileReport:
    work = _File(path)
    with ExitStack() as closing:
        try:
            source = open_bytes(path, most_bytes, closing)
        except BadInput as err:
            return FileReport(path, "", 0, 0, {}, str(err))
        for found in documents(source):
            _take(work, found, store, options)
        _flush(work, store, options)
        digest = source.digest.hexdigest()
    if not named and not work.read and work.rejected.keys() == {"unknown-format"}:
        return FileReport(path, "", 0, 0, {}, skipped=work.details["unknown-format"].rpartition(": found ")[2])
    _note_rejects(work, store, digest)
    error = ""
    if not work.read and work.details:
        error = next(iter(work.details.values()))
    return FileReport(path, "+".join(work.formats), work.read, work.stored, dict(work.rejected), error)


def _take(work: _File, found: Document | Fault, store: Store, options: Options) -> None:
    if isinstance(found, Fault):
        work.reject(found.reason, found.detail)
        return
    try:
        kind = f"otlp-protobuf:{protobuf_topic(found.raw)}" if found.value is None else classify(found.value)
    except BadInput as err:
        work.reject(err.reason, f"line {found.line}: {err}" if found.line > 1 else str(err))
        return
    if kind != work.waiting_kind or work.waiting_bytes > BATCH_BYTES or len(work.waiting) >= BATCH_DOCUMENTS:
        _flush(work, store, options)
    work.waiting_kind = kind
    work.waiting.append(found)
    work.waiting_bytes += len(found.raw)


def _flush(work: _File, store: Store, options: Options) -> None:
    """Convert and store what waits, under a token made of its bytes."""
    if not work.waiting:
        return
    batch, kind = work.waiting, work.waiting_kind
    work.waiting, work.waiting_bytes = [], 0
    name = kind.partition(":")[0]
    if name not in work.formats:
        work.formats.append(name)
    token = hashlib.sha256(kind.encode())
    for document in batch:
        token.update(document.raw)
    for number, decoded in enumerate(_decoded(work, batch, kind, options)):
        work.read += decoded.accepted + decoded.rejected
        for reject in decoded.rejects:
            work.reject(reject.reason, reject.detail, reject.count)
        for table, rows in decoded.tables.items():
            _store(store, table, rows, f"file:{token.hexdigest()[:40]}:{number}:{table}")
            work.stored += len(rows)


def _decoded(work: _File, batch: Sequence[Document], kind: str, options: Options) -> Iterator[Decoded]:
    name, _, topic = kind.partition(":")
    if name == "otlp-protobuf":
        yield from _each(work, [partial(decode, topic, one.raw, options=options) for one in batch])
    elif name == "otlp-json":
        values = [inner for one in batch for inner in _flat(one.value)]
        for signal, keys in OTLP_TOPICS.items():
            wanted = [value for value in values if isinstance(value, dict) and any(key in value for key in keys)]
            if wanted:
                yield from _documents(work, signal, wanted, options)
    else:
        gathered = CONVERT[name]([inner for one in batch for inner in _flat(one.value)])
        work.read += sum(gathered.rejected.values())
        for reason, count in gathered.rejected.items():
            work.reject(reason, gathered.details[reason], count)
        yield decode_request(gathered.request, options)


def _flat(value: object, depth: int = 2) -> list[object]:
    """The documents in a list of documents, or in a list of lists (Zipkin's answer to a query)."""
    if isinstance(value, list) and depth:
        return [found for inner in value for found in _flat(inner, depth - 1)]
    return [value]


def _documents(work: _File, signal: str, wanted: Sequence[object], options: Options) -> Iterator[Decoded]:
    """All at once; one by one when one of them spoils the lot."""
    try:
        yield decode_document(signal, wanted, options)
    except BadInput:
        yield from _each(work, [partial(decode_document, signal, value, options) for value in wanted])


def _each(work: _File, calls: Sequence[Callable[[], Decoded]]) -> Iterator[Decoded]:
    for call in calls:
        try:
            yield call()
        except BadInput as err:
            work.reject(err.reason, str(err))


def _store(store: Store, table: str, rows: pa.Table, token: str) -> None:
    """Traces and metrics repeat harmlessly (their tables keep one row each); a log line does not: its blocks are remembered."""
    if table != "otel_logs":
        store.insert(table, rows, token=token)
        return
    if store.value(
        "SELECT count() FROM ingest_ledger WHERE Topic = {topic:String} AND Token = {token:String}",
        topic=LEDGER,
        token=token,
    ):
        return
    store.insert(table, rows, token=token)
    number = int.from_bytes(hashlib.sha256(token.encode()).digest()[:7], "big")
    kept = pd.DataFrame(
        {"Topic": [LEDGER], "Partition": [0], "FirstOffset": [number], "Offset": [len(rows)], "Token": [token]}
    )
    store.insert("ingest_ledger", kept.astype({"Partition": "int32"}))


def _note_rejects(work: _File, store: Store, digest: str) -> None:
    """Rejects stand in the table once, however often the same file is read."""
    if not work.rejected:
        return
    reasons = list(work.rejected)
    frame = pd.DataFrame(
        {
            "Topic": log.TRACES,
            "Source": work.path[-200:],
            "Reason": reasons,
            "Detail": [work.details[reason][:200] for reason in reasons],
            "Count": pd.array([work.rejected[reason] for reason in reasons], dtype="uint64"),
        }
    )
    store.insert("ingest_rejects", frame, token=f"file:{digest}:rejects")
