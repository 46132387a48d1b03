"""Tickets as Markdown files in a folder: the tracker that needs no account.

Must stay true: a file whose content would not change is not touched.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from analytics.tickets_plan import Change
from analytics.tickets_text import markdown, merged
from ingest.errors import Unavailable


class FilesSink:
    """One file a ticket, `<environment>/<key>.md`; a closed ticket stays where it is and says so."""

    name = "files"

    def __init__(self, folder: Path, owner: Callable[[Change], str], extra: Callable[[Change], str]) -> None:
        self.folder, self._owner, self._extra = folder, owner, extra

    def apply(self, change: Change) -> str:
        path = self.folder / f"{change.marker.removeprefix('stagescope-')}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        body = markdown(change, self._owner(change), self._extra(change))
        head = f"# {_line(change.ticket.title)}\n\nState: **{change.ticket.state}**\n\n"
        text = head + merged(_without_head(old), body)
        if text != old:
            self._write(path, text)
        return path.name

    def _write(self, path: Path, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".ticket-", dir=self.folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as out:
                out.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except OSError as err:
            raise Unavailable(f"ticket file {path} cannot be written: {err.strerror}") from err


def _without_head(text: str) -> str:
    lines = text.split("\n")
    if lines[:1] and lines[0].startswith("# "):
        lines = lines[4:] if len(lines) > 2 and lines[2].startswith("State: ") else lines[2:]
    return "\n".join(lines)


def _line(text: str) -> str:
    return " ".join(text.split())
