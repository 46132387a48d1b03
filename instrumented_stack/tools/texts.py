"""Tools on text: search an index, translate by glossary, shorten, convert formats. Same input, same output."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from instrumented_stack.errors import BadRequest

DATA = Path(__file__).resolve().parent.parent / "data"
_WORD = re.compile(r"[a-zäöüß0-9]+", re.IGNORECASE)


@lru_cache(maxsize=1)
def _index() -> tuple[tuple[Mapping[str, str], Counter[str]], ...]:
    """Passages with their word counts."""
    lines = (DATA / "handbook.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [json.loads(line) for line in lines]
    return tuple((item, Counter(words_of(item["text"]))) for item in passages)


def words_of(text: str) -> list[str]:
    """Lower-case words without a plural s."""
    return [word.lower().rstrip("s") for word in _WORD.findall(text)]


def search(query: str, limit: int = 5) -> Sequence[Mapping[str, str]]:
    """The passages of the handbook nearest to `query`, best first; none when no word fits. BM25 (Robertson, Zaragoza 2009)."""
    index = _index()
    mean = sum(counts.total() for _, counts in index) / len(index)
    found = []
    for item, counts in index:
        score = 0.0
        for word in set(words_of(query)):
            if counts[word]:
                having = sum(1 for _, other in index if other[word])
                rarity = math.log(1 + (len(index) - having + 0.5) / (having + 0.5))
                score += rarity * counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * counts.total() / mean))
        if score > 0.5:
            found.append((score, item))
    return [item for _, item in sorted(found, key=lambda pair: -pair[0])[:limit]]


@lru_cache(maxsize=1)
def _glossary() -> Mapping[str, str]:
    words: Mapping[str, str] = json.loads((DATA / "glossary.json").read_text(encoding="utf-8"))
    return words


def translate(text: str) -> str:
    """English to German by glossary, longest phrases first; words it does not know stay."""
    known = _glossary()
    pattern = "|".join(re.escape(phrase) for phrase in sorted(known, key=len, reverse=True))
    return re.sub(rf"\b({pattern})\b", lambda match: known[match[1].lower()], text, flags=re.IGNORECASE)


def summarise_text(text: str, sentences: int = 2) -> str:
    """The sentences whose words are the most frequent ones, in their order."""
    parts = [part.strip() for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    counts = Counter(word.lower() for word in _WORD.findall(text) if len(word) > 3)

    def weight(part: str) -> float:
        words = _WORD.findall(part)
        return sum(counts[word.lower()] for word in words) / (len(words) or 1)

    best = set(sorted(range(len(parts)), key=lambda at: -weight(parts[at]))[:sentences])
    return " ".join(part for at, part in enumerate(parts) if at in best)


def convert_format(text: str, to: str) -> str:
    """CSV or a JSON list of objects → csv, json, markdown or html. Raises BadRequest on anything else."""
    rows = _rows(text)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if to == "json":
        return json.dumps(rows, ensure_ascii=False)
    if to == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    cells = [[str(row.get(name, "")) for name in names] for row in rows]
    if to == "markdown":
        lines = [names, ["---"] * len(names), *cells]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
    if to == "html":
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in cells)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        return f"<table><tr>{head}</tr>{body}</table>"
    raise BadRequest(f"cannot convert to {to!r}: one of csv, json, markdown, html")


def _rows(text: str) -> list[dict[str, Any]]:
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise BadRequest(f"not valid JSON: {error}") from None
        if not all(isinstance(row, dict) for row in rows):
            raise BadRequest("JSON must be a list of objects")
        return list(rows)
    return list(csv.DictReader(io.StringIO(text)))
