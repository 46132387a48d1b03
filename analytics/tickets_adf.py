"""Our own Markdown as Atlassian Document Format (version 1): headings, paragraphs, lists, tables, code, bold, code spans.

Must stay true: the same Markdown gives the same document, so that an unchanged ticket is seen as unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

MOST_TEXT = 30_000
_INLINE = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|_([^_`]{3,})_")


def document(markdown: str) -> dict[str, Any]:
    """Blocks are parted by blank lines; HTML comments are left out."""
    text = re.sub(r"<!--.*?-->\n*", "", markdown[:MOST_TEXT], flags=re.S)
    blocks = [block for block in re.split(r"\n{2,}(?![^\n]*```\n)", text.strip()) if block.strip()]
    return {"type": "doc", "version": 1, "content": [node for block in blocks for node in _block(block.strip("\n"))]}


def _block(block: str) -> Iterator[dict[str, Any]]:
    lines = block.split("\n")
    if lines[0].startswith("#"):
        level = len(lines[0]) - len(lines[0].lstrip("#"))
        yield {"type": "heading", "attrs": {"level": level}, "content": _inline(lines[0].lstrip("# "))}
        lines = lines[1:]
    if not lines:
        return
    if lines[0].startswith("```"):
        body = [line for line in lines if not line.startswith("```")]
        yield {
            "type": "codeBlock",
            "attrs": {"language": lines[0].strip("`") or "text"},
            "content": _plain("\n".join(body)),
        }
    elif lines[0].startswith("|"):
        yield _table(lines)
    elif lines[0].startswith("- "):
        items = [line[2:] for line in lines if line.startswith("- ")]
        yield {"type": "bulletList", "content": [{"type": "listItem", "content": [_paragraph(item)]} for item in items]}
    else:
        yield _paragraph(" ".join(lines))


def _table(lines: list[str]) -> dict[str, Any]:
    rows = [line for line in lines if not re.fullmatch(r"[|\s:-]+", line)]
    out = []
    for number, line in enumerate(rows):
        kind = "tableHeader" if number == 0 else "tableCell"
        cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
        out.append(
            {"type": "tableRow", "content": [{"type": kind, "content": [_paragraph(item.strip())]} for item in cells]}
        )
    return {"type": "table", "content": out}


def _paragraph(text: str) -> dict[str, Any]:
    return {"type": "paragraph", "content": _inline(text)}


def _plain(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _inline(text: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    at = 0
    for found in _INLINE.finditer(text):
        out += _plain(_unescaped(text[at : found.start()]))
        strong, code, soft = found.groups()
        mark = "strong" if strong else "code" if code else "em"
        out.append({"type": "text", "text": _unescaped(strong or code or soft), "marks": [{"type": mark}]})
        at = found.end()
    return out + _plain(_unescaped(text[at:]))


def _unescaped(text: str) -> str:
    return unescape(text.replace("\\|", "|"))
