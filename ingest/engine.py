"""One query on the embedded engine for somebody outside: a connection of its own, with settings, bounds and the engine's error codes.

Must stay true: a reader's connection is readonly=1 before any of the reader's text reaches it, and is used for that text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import chdb
import psutil

from ingest import statement

STREAMED = frozenset({"native", "tabseparated", "tsv", "csv", "rowbinary", "jsoneachrow", "tabseparatedraw", "tsvraw"})
ENGINE_TROUBLE = (RuntimeError, chdb.ChdbError)
READER_BOUNDS: Mapping[str, int] = {
    "max_execution_time": 60,
    "max_memory_usage": max(512 << 20, min(4 << 30, psutil.virtual_memory().total // 4)),
    "max_result_rows": 20_000_000,
    "max_result_bytes": 512 << 20,
    "max_rows_to_read": 20_000_000_000,
    "max_threads": 16,
}
_STATUS = {
    48: 501, 60: 404, 81: 404, 115: 404, 46: 404, 47: 404, 62: 400, 26: 400, 27: 400, 36: 400, 41: 400, 43: 400, 53: 400, 72: 400,
    73: 400, 456: 400, 457: 400, 164: 403, 497: 403, 516: 403, 159: 408, 202: 503, 241: 500,
}  # fmt: skip


class EngineError(Exception):
    """What the engine (or we in its name) answered: ClickHouse's `code` and its text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status ClickHouse gives this code."""
        return _STATUS.get(self.code, 500)

    @property
    def body(self) -> bytes:
        text = str(self)
        return (text if text.startswith("Code: ") else f"Code: {self.code}. DB::Exception: {text}").encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """A query as it came: text (may end in rows), default format, settings, `{name:Type}` values, and who asks."""

    text: bytes
    owner: bool
    database: str
    default_format: str = "TabSeparated"
    settings: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


class Answer(Protocol):
    """Bytes in `fmt` ('' when the statement has no result), block by block; `summary` is complete once they are read."""

    fmt: str
    summary: dict[str, str]

    def blocks(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class Engine:
    """Opens a connection an Ask, on the folder the process already owns."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder.resolve())
        connection = chdb.connect(self._path)  # type: ignore[no-untyped-call]
        names = connection.query("SELECT lower(name) FROM system.table_functions", "TSVRaw").bytes().decode()
        self.version = connection.query("SELECT version()", "TSVRaw").bytes().decode().strip()
        self.timezone = connection.query("SELECT timezone()", "TSVRaw").bytes().decode().strip()
        connection.close()
        self._table_functions = frozenset(names.split())

    def ask(self, ask: Ask) -> Answer:
        """Start the query; raises EngineError. The caller reads `blocks()` and calls `close()`."""
        connection = chdb.connect(self._path)  # type: ignore[no-untyped-call]
        try:
            return self._owner(connection, ask) if ask.owner else self._reader(connection, ask)
        except ENGINE_TROUBLE as err:
            connection.close()
            raise engine_error(err) from err
        except ValueError as err:
            connection.close()
            raise EngineError(115, f"Unknown setting '{err}'. (UNKNOWN_SETTING)") from err
        except EngineError:
            connection.close()
            raise

    def _owner(self, connection: Any, ask: Ask) -> Answer:
        _prepare(connection, ask.database, ask.settings)
        insert = statement.split_insert(ask.text)
        if insert:
            return _insert(connection, insert, memoryview(ask.text)[insert.data_from :])
        return _run(connection, _decode(ask.text), ask)

    def _reader(self, connection: Any, ask: Ask) -> Answer:
        for name in ask.settings:
            if why := statement.setting_refusal(name):
                raise EngineError(164, f"{why}. (READONLY)")
        asked = {name: value for name, value in ask.settings.items() if name not in READER_BOUNDS}
        bounds = {name: str(_lower(ask.settings.get(name), bound)) for name, bound in READER_BOUNDS.items()}
        _prepare(connection, ask.database, {"final": "1", **asked, **bounds, "readonly": "1"})
        text = {"q": statement.escape_param(_decode(ask.text))}
        canonical = (
            connection.query("SELECT formatQuerySingleLine({q:String})", "RawBLOB", params=text).bytes().decode()
        )
        canonical = canonical.rstrip("\n")
        if why := statement.refusal(canonical, self._table_functions):
            raise EngineError(164, f"Cannot execute query in readonly mode: {why}. (READONLY)")
        return _run(connection, canonical, ask)


class _Whole:
    """A result that is complete: DDL, formats with a header and footer, and inserts."""

    def __init__(self, connection: Any, data: bytes, fmt: str, summary: dict[str, str]) -> None:
        self._connection, self._data, self.fmt, self.summary = connection, data, fmt, summary

    def blocks(self) -> Iterator[bytes]:
        if self._data:
            yield self._data

    def close(self) -> None:
        self._connection.close()


class _Streamed:
    """A result that is handed on block by block, so that its size is not bounded by memory."""

    def __init__(self, connection: Any, stream: Any, fmt: str) -> None:
        self._connection, self._stream, self.fmt = connection, stream, fmt
        self.summary = _summary()

    def blocks(self) -> Iterator[bytes]:
        rows = read_rows = read_bytes = 0
        try:
            for block in self._stream:
                rows += block.rows_read()
                read_rows, read_bytes = read_rows + block.storage_rows_read(), read_bytes + block.storage_bytes_read()
                self.summary = _summary(read_rows=read_rows, read_bytes=read_bytes, result_rows=rows)
                yield block.bytes()
        except ENGINE_TROUBLE as err:
            raise engine_error(err) from err

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def engine_error(err: Exception) -> EngineError:
    """The engine's own code and text out of chDB's exception."""
    text = str(err)
    found = re.search(r"Code: (\d+)\. ", text)
    return EngineError(int(found.group(1)), text[found.start() :].strip()) if found else EngineError(1002, text)


def _prepare(connection: Any, database: str, settings: Mapping[str, str]) -> None:
    if not re.fullmatch(r"\w+", database):
        raise EngineError(81, f"Database {database} does not exist. (UNKNOWN_DATABASE)")
    connection.query(f"USE `{database}`")
    if settings:
        connection.query(statement.set_statement(settings))


def _run(connection: Any, sql: str, ask: Ask) -> Answer:
    fmt = statement.output_format(sql, ask.default_format)
    if not statement.has_result(sql):
        result = connection.query(sql, ask.default_format, params=dict(ask.params))
        return _Whole(connection, result.bytes() or b"", "", _result_summary(result))
    if fmt.lower() in STREAMED and statement.first_word(sql) in ("SELECT", "WITH"):
        return _Streamed(connection, connection.send_query(sql, ask.default_format, params=dict(ask.params)), fmt)
    result = connection.query(sql, ask.default_format, params=dict(ask.params))
    return _Whole(connection, result.bytes() or b"", fmt, _result_summary(result))


def _insert(connection: Any, insert: statement.DataInsert, data: memoryview) -> Answer:
    inserter = connection.send_insert(f"{insert.head} {insert.settings}", insert.fmt)
    try:
        for start in range(0, len(data), 4 << 20):
            inserter.append(bytes(data[start : start + (4 << 20)]))
        done = inserter.finish()
    except ENGINE_TROUBLE:
        inserter.close()
        raise
    return _Whole(connection, b"", "", _summary(written_rows=done.rows_written, written_bytes=done.bytes_written))


def _result_summary(result: Any) -> dict[str, str]:
    return _summary(
        read_rows=result.storage_rows_read(),
        read_bytes=result.storage_bytes_read(),
        written_rows=result.rows_written(),
        written_bytes=result.bytes_written(),
        result_rows=result.rows_read(),
        elapsed_ns=int(result.elapsed() * 1e9),
    )


def _summary(**known: int) -> dict[str, str]:
    names = (
        "read_rows read_bytes written_rows written_bytes total_rows_to_read result_rows result_bytes elapsed_ns".split()
    )
    return {name: str(known.get(name, 0)) for name in names}


def _lower(asked: str | None, bound: int) -> int:
    return min(int(asked), bound) if asked and asked.isdigit() and int(asked) > 0 else bound


def _decode(text: bytes) -> str:
    try:
        return text.decode().strip()
    except UnicodeDecodeError as err:
        raise EngineError(62, f"Syntax error: the query is not UTF-8 text ({err.reason}). (SYNTAX_ERROR)") from err
