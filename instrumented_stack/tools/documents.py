"""Tools on documents: text out of a PDF, questions over a table. Read-only."""

from __future__ import annotations

import csv
import re
import zlib
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

from instrumented_stack.errors import BadRequest
from instrumented_stack.tools.texts import DATA

_STREAM = re.compile(rb"<<(.*?)>>\s*stream\r?\n", re.DOTALL)
_SHOWN = re.compile(rb"\(((?:\\.|[^\\()])*)\)\s*Tj|\[((?:\\.|[^\]])*)\]\s*TJ|(T\*|Td|ET)", re.DOTALL)
_PIECE = re.compile(rb"\(((?:\\.|[^\\()])*)\)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([nrtbf()\\]|[0-7]{1,3})")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
LIMIT_BYTES = 20_000_000


def parse_document(path: Path | None = None) -> str:
    """The text of a PDF with simple fonts, a line a line. Raises BadRequest when it is no PDF or too large."""
    raw = (path or DATA / "contract.pdf").read_bytes()
    if not raw.startswith(b"%PDF-"):
        raise BadRequest("not a PDF document")
    pages = []
    for match in _STREAM.finditer(raw):
        end = raw.find(b"endstream", match.end())
        if end < 0:
            raise BadRequest("the PDF ends in the middle of a stream")
        text = _text(_inflated(match[1], raw[match.end() : end]))
        if text:
            pages.append(text)
    return "\n".join(pages)


def _inflated(about: bytes, body: bytes) -> bytes:
    if b"/FlateDecode" not in about:
        return body
    try:
        return zlib.decompressobj().decompress(body, LIMIT_BYTES)
    except zlib.error as error:
        raise BadRequest(f"a stream of the PDF is broken: {error}") from None


def _text(content: bytes) -> str:
    lines: list[str] = [""]
    for match in _SHOWN.finditer(content):
        if match[3]:
            lines.append("")
        elif match[1] is not None:
            lines[-1] += _plain(match[1])
        else:
            lines[-1] += "".join(_plain(piece) for piece in _PIECE.findall(match[2]))
    return "\n".join(line for line in lines if line)


def _plain(text: bytes) -> str:
    def one(match: re.Match[bytes]) -> bytes:
        return _PLAIN.get(match[1], bytes((int(match[1], 8) & 255,)) if match[1].isdigit() else match[1])

    return _ESCAPE.sub(one, text).decode("latin-1")


@lru_cache(maxsize=1)
def _sales() -> tuple[dict[str, str], ...]:
    with (DATA / "sales.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def query_table(question: str) -> tuple[str, int]:
    """(answer, rows read): `revenue by region where quarter=2026Q1`. Raises BadRequest on columns that are not there."""
    match = re.search(r"(units|revenue)\s+by\s+(\w+)(?:\s+where\s+(.*))?", question)
    measure, group, conditions = (match[1], match[2], match[3] or "") if match else ("revenue", "region", "")
    rows = _sales()
    if group not in rows[0]:
        raise BadRequest(f"no column {group!r}; columns: {', '.join(rows[0])}")
    wanted = dict(re.findall(r"(\w+)\s*=\s*([\w-]+)", conditions))
    if missing := set(wanted) - set(rows[0]):
        raise BadRequest(f"no column {sorted(missing)[0]!r}; columns: {', '.join(rows[0])}")
    totals: dict[str, float] = defaultdict(float)
    hits = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    for row in hits:
        totals[row[group]] += float(row[measure])
    best = sorted(totals.items(), key=lambda item: -item[1])
    return "; ".join(f"{name}: {total:.2f}" for name, total in best), len(hits)
