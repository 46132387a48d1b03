"""Numbers and tables for a plain terminal. A pipe gets whole values; only a terminal's lines are cut to its width."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

DASH = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a printed table; `right` for numbers."""

    title: str
    right: bool = False


def columns(*titles: str) -> list[Column]:
    """Columns from titles; one that begins with `>` is set flush right."""
    return [Column(title.lstrip(">"), title.startswith(">")) for title in titles]


def table(head: Sequence[Column], rows: Iterable[Sequence[object]], out: TextIO | None = None) -> None:
    """Print rows under a head, two spaces apart; on a terminal the widest text column gives way."""
    out = out or sys.stdout
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(width(column.title), *(width(row[place]) for row in cells)) if cells else width(column.title)
        for place, column in enumerate(head)
    ]
    if out.isatty():
        widths = _fit(head, widths, shutil.get_terminal_size((120, 40)).columns)
    lines = [[column.title for column in head], ["─" * size for size in widths], *cells]
    for line in lines:
        parts = [_pad(text, size, column.right) for text, size, column in zip(line, widths, head, strict=True)]
        print("  ".join(parts).rstrip(), file=out)


def _fit(head: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Shrink left-aligned columns, widest first, until the line fits or each is down to 12."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > room:
        able = [place for place, column in enumerate(head) if not column.right and fitted[place] > 12]
        if not able:
            break
        fitted[max(able, key=lambda place: fitted[place])] -= 1
    return fitted


def width(text: str) -> int:
    """Columns that `text` takes on a terminal: wide letters count two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _pad(text: str, size: int, right: bool) -> str:
    if width(text) > size:
        while text and width(text) > size - 1:
            text = text[:-1]
        text += "…"
    gap = " " * (size - width(text))
    return gap + text if right else text + gap


def _cell(value: object) -> str:
    return DASH if value is None or value != value else printable(str(value))


def printable(text: str) -> str:
    """`text` on one line with control characters shown as `·`, so that stored text cannot drive the terminal."""
    return "".join("·" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co") else letter for letter in text)


def ms(value: float | None) -> str:
    """A time given in milliseconds, in the unit a person would say: 0.42 ms, 890 ms, 2.10 s, 3 m 20 s."""
    if value is None or value != value:
        return DASH
    if abs(value) < 10:
        return f"{value:.2f} ms"
    if abs(value) < 1000:
        return f"{value:.0f} ms"
    if abs(value) < 60_000:
        return f"{value / 1000:.2f} s"
    return seconds(value / 1000)


def seconds(value: float | None) -> str:
    """A time given in seconds: 2.10 s, 3 m 20 s, 5 h 4 m, 2.3 d."""
    if value is None or value != value:
        return DASH
    if abs(value) < 1:
        return ms(value * 1000)
    if abs(value) < 60:
        return f"{value:.2f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{value / 86400:.1f} d"


def count(value: float | None) -> str:
    """A count with thousands set apart."""
    return DASH if value is None or value != value else f"{int(value):,}"


def percent(ratio: float | None) -> str:
    """A ratio 0..1 as a percentage; small ones keep a digit."""
    if ratio is None or ratio != ratio:
        return DASH
    return f"{ratio:.1%}" if abs(ratio) < 0.1 else f"{ratio:.0%}"


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None or value != value:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment(value: datetime | None) -> str:
    """A time in UTC to the second: 2026-11-30 18:34:41Z."""
    if value is None or value != value:
        return DASH
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def to_json(document: Any) -> str:
    """One JSON document as text: NaN as null, times as ISO 8601 UTC, keys as they come."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC
    return orjson.dumps(_plain(document), option=option, default=_foreign).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return None if value is not None and not isinstance(value, bytes) and _missing(value) else value


def _missing(value: Any) -> bool:
    differs = value != value
    return differs if isinstance(differs, bool) else bool(getattr(differs, "ndim", 1) == 0 and differs)


def _foreign(value: Any) -> Any:
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
