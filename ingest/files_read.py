"""A file's bytes as documents: gzip, JSON lines, whole JSON, protobuf; never more than one document in memory.

Must stay true: whatever stands in a file, memory stays within a few times the largest document allowed, and reading goes on
behind a line that is no document.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from ingest.errors import BadInput
from ingest.otlp_json import read_json

CHUNK = 1 << 20
SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
MOST_RATIO = 200  # inflated to compressed; traces reach 10-40, a bomb 1000
BLANK, BLANK_OR_BOM = re.compile(rb"[ \t\r\n]*"), re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
LONG_INTEGER = re.compile(rb"[:\[,\s]-?\d{20,}[\s,\]}]")


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON document (`value`), or the bytes of one protobuf message when `value` is None."""

    raw: bytes
    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of the file that is no document."""

    reason: str
    detail: str


@dataclass(slots=True)
class Bytes:
    """The (inflated) bytes of one file in pieces, with the digest of what was read."""

    stream: BinaryIO
    compressed: BinaryIO | None
    most_bytes: int
    held: bytes = b""
    at: int = 0
    number: int = 0
    total: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def more(self) -> bytes:
        """The next piece; b"" at the end. Raises BadInput."""
        try:
            piece = self.stream.read(CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise BadInput("bad-gzip", f"the gzip data ends or breaks after {self.total} bytes: {err}") from None
        self.total += len(piece)
        self.digest.update(piece)
        if self.compressed is not None and self.total > max(self.most_bytes, MOST_RATIO * self.compressed.tell()):
            raise BadInput(
                "gzip-bomb", f"{self.total} bytes from {self.compressed.tell()} compressed: more than {MOST_RATIO} to 1"
            )
        return piece

    def start(self) -> bytes:
        """The first piece, to tell the format by; it stays to be read."""
        self.held = self.held or self.more()
        return self.held

    def skip(self, space: re.Pattern[bytes]) -> None:
        """Pass over blank lines, in one step however many."""
        while True:
            end = cast(re.Match[bytes], space.match(self.held, self.at)).end()
            self.number += self.held.count(b"\n", self.at, end)
            self.at = end
            if end < len(self.held):
                return
            self.held, self.at = self.more(), 0
            if not self.held:
                return

    def line(self) -> tuple[bytes | None, bool]:
        """The next line that is not blank, and whether it is within the limit (of a longer one only the beginning); None at the end."""
        self.skip(BLANK)
        self.number += 1
        parts, size = [], 0
        while (cut := self.held.find(b"\n", self.at)) < 0:
            if size <= self.most_bytes:
                parts.append(self.held[self.at :])
            size += len(self.held) - self.at
            self.held, self.at = self.more(), 0
            if not self.held:
                return (b"".join(parts), size <= self.most_bytes) if size else (None, True)
        size += cut - self.at
        if size <= self.most_bytes:
            parts.append(self.held[self.at : cut])
        self.at = cut + 1
        return b"".join(parts), size <= self.most_bytes

    def rest(self, begun: bytes) -> bytes:
        """`begun` and all that follows. Raises BadInput(too-large)."""
        parts, size = [begun, self.held[self.at :]], len(begun) + len(self.held) - self.at
        self.held, self.at = b"", 0
        while piece := self.more():
            size += len(piece)
            if size > self.most_bytes:
                expected = f"one document of more than {self.most_bytes} bytes; JSON lines have no such limit"
                raise BadInput("too-large", expected)
            parts.append(piece)
        return b"".join(parts)

    @property
    def next(self) -> bytes:
        """The beginning of what is held beyond the last line."""
        return self.held[self.at : self.at + 100]


def open_bytes(path: str, most_bytes: int, closing: ExitStack) -> Bytes:
    """`path`, or standard input for `-`; gzip is known by its first bytes. Raises BadInput(unreadable)."""
    try:
        raw = sys.stdin.buffer if path == "-" else closing.enter_context(Path(path).open("rb"))  # noqa: SIM115
        peekable = raw if isinstance(raw, BufferedReader) else BufferedReader(cast(Any, raw))
        if peekable.peek(2)[:2] != b"\x1f\x8b":
            return Bytes(cast(BinaryIO, peekable), None, most_bytes)
        inflated = closing.enter_context(gzip.GzipFile(fileobj=peekable, mode="rb"))
    except OSError as err:
        raise BadInput("unreadable", f"cannot be read: {err.strerror or err}") from None
    return Bytes(cast(BinaryIO, inflated), cast(BinaryIO, peekable) if peekable.seekable() else None, most_bytes)


def documents(source: Bytes) -> Iterator[Document | Fault]:
    """Everything in the file, in order. Never raises BadInput: what cannot be read comes as a Fault."""
    try:
        if source.start().startswith(WIDE_BOMS):  # what a redirection in PowerShell writes
            yield Fault("bad-encoding", "text in UTF-16 or UTF-32: save it as UTF-8")
            return
        if _is_binary(source.start()):
            yield Document(source.rest(b""), None, 1)
            return
        source.skip(BLANK_OR_BOM)
        first, fits = source.line()
        if first is None:
            yield Fault("empty", "nothing in the file")
        elif not fits or _line_by_line(source, first):
            yield from _lines(source, first, fits)
        else:
            yield from _whole(source.rest(first + b"\n"))
    except BadInput as err:
        yield Fault(err.reason, str(err))


def _is_binary(start: bytes) -> bool:
    """No JSON: protobuf begins with a newline, so control characters behind one tell it from a blank line."""
    if start.startswith(b"\n") and CONTROL.search(start, 0, 4096):
        return True
    text = start.removeprefix(BOM).lstrip(SPACE)
    return bool(text) and text[:1] not in (b"{", b"[")


def _line_by_line(source: Bytes, first: bytes) -> bool:
    """Whether each line is a document: the first one parses, or it is broken and the second looks like a document."""
    try:
        _parse(first)
    except BadInput:
        return len(first.strip(SPACE)) > 2 and source.next.lstrip(SPACE)[:2] in (b'{"', b"[{")
    return True


def _lines(source: Bytes, first: bytes, fits: bool) -> Iterator[Document | Fault]:
    line: bytes | None = first
    while line is not None:
        if fits:
            yield _document(line, source.number)
        else:
            yield Fault("line-too-long", f"line {source.number} has more than {source.most_bytes} bytes")
        line, fits = source.line()


def _document(line: bytes, number: int) -> Document | Fault:
    try:
        return Document(line, _parse(line), number)
    except BadInput as err:
        return Fault(err.reason, f"line {number}: {err}")


def _whole(body: bytes) -> Iterator[Document | Fault]:
    """One document, or several one after the other; when neither, whatever lines are documents."""
    try:
        yield Document(body, _parse(body), 1)
        return
    except BadInput as err:
        fault = Fault(err.reason, str(err))
    found, text, at = 0, body.decode("utf-8", "replace"), 0
    decoder = json.JSONDecoder()
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found += isinstance(value, dict | list)
        yield Document(text[at:end].encode("utf-8", "replace"), value, text.count("\n", 0, at) + 1)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    if at < len(text):
        yield fault if not found else Fault(fault.reason, f"after {found} documents: {fault.detail}")


def _parse(raw: bytes) -> Any:
    """As `read_json`, with integers of any length exact (ids may be 128-bit numbers)."""
    if LONG_INTEGER.search(raw):
        try:
            return json.loads(raw.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError) as err:
            raise BadInput("bad-json", f"not JSON: {err}") from None
    return read_json(raw)
