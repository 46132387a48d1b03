"""Which pattern and cluster each failure belongs to, remembered in the store so that an id lasts over weeks.

Must stay true: a pattern keeps its cluster for good, except where a person said otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analytics import scenes
from analytics.failures_group import MOST_AT_ONCE, Pattern, assign, cluster_name
from analytics.failures_load import records
from analytics.failures_text import status_code
from analytics.templates import Templates
from ingest.store import Store

MOST_TEMPLATES = 20_000
MOST_SAMPLED = 200
Parts = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Sample:
    """What a new pattern is judged by: its first row, and the measured context of up to 200."""

    message: str
    tool: str
    frames: tuple[str, ...]
    contexts: tuple[Iterable[tuple[str, str]], ...]

    @classmethod
    def of(cls, documents: pd.DataFrame, rows: Sequence[int]) -> _Sample:
        first = rows[0]
        frames: Any = documents["Frames"].iat[first]
        contexts: Any = documents["Context"].iloc[list(rows[:MOST_SAMPLED])].tolist()
        return cls(
            str(documents["Message"].iat[first]), str(documents["Tool"].iat[first]), tuple(frames), tuple(contexts)
        )


class Patterns:
    """The book of templates, the patterns made of them, their clusters, and people's verdicts."""

    def __init__(
        self, book: Templates, patterns: Iterable[Pattern] = (), clusters: Mapping[str, str] | None = None
    ) -> None:
        self.book = book
        self.patterns: dict[str, Pattern] = {item.pattern_id: item for item in patterns}
        self.cluster_of: dict[str, str] = dict(clusters or {})
        self.apart: frozenset[frozenset[str]] = frozenset()
        self._by_parts: dict[Parts, str] = {}
        for item in self.patterns.values():
            self._by_parts.setdefault(self._parts(item), item.pattern_id)
        self._saved_patterns = dict(self.cluster_of)
        self._saved_templates = {
            key: (index, atoms, book.aliases.get(key, "")) for index, (key, atoms) in enumerate(book.known())
        }

    @classmethod
    def load(cls, store: Store) -> Patterns:
        """As the store remembers them."""
        rows = store.read("SELECT TemplateId, Atoms, AliasOf FROM failure_templates ORDER BY Place, TemplateId")
        known = [(str(row["TemplateId"]), tuple(map(str, row["Atoms"]))) for row in records(rows)]
        aliases = {str(row["TemplateId"]): str(row["AliasOf"]) for row in records(rows) if row["AliasOf"]}
        book = Templates(known, aliases)
        atoms = dict(known)
        found = store.read(
            "SELECT PatternId, TemplateId, ErrorType, Code, Stage, Frames, Scene, ClusterId FROM failure_patterns "
            "ORDER BY Place, PatternId"
        )
        patterns = [
            Pattern(
                str(row["PatternId"]),
                str(row["TemplateId"]),
                atoms.get(str(row["TemplateId"]), ()),
                str(row["ErrorType"]),
                str(row["Code"]),
                str(row["Stage"]),
                tuple(map(str, row["Frames"])),
                str(row["Scene"]),
            )
            for row in records(found)
        ]
        out = cls(book, patterns, {str(row["PatternId"]): str(row["ClusterId"]) for row in records(found)})
        verdicts = store.read("SELECT One, Other FROM failure_verdicts WHERE Same = 0")
        out.apart = frozenset(frozenset((str(row["One"]), str(row["Other"]))) for row in records(verdicts))
        return out

    def place(self, documents: pd.DataFrame) -> pd.DataFrame:
        """`documents` with PatternId and ClusterId; unseen patterns are learned on the way."""
        messages: list[str] = documents["Message"].tolist()
        before = len(self.book.known())
        first = self.book.assign(messages)
        if before < len(self.book.known()) <= MOST_TEMPLATES and self.book.learn():
            self._join()
        templates = {item: self.book.resolve(item) for item in set(first)}
        codes = {text: status_code("", text) for text in set(messages)}
        kinds, stages = documents["ErrorType"].tolist(), documents["Stage"].tolist()
        keys = [
            (templates[template], str(kind), codes[text], str(stage))
            for template, kind, text, stage in zip(first, kinds, messages, stages, strict=True)
        ]
        rows: dict[Parts, list[int]] = {}
        for place, key in enumerate(keys):
            rows.setdefault(key, []).append(place)
        ordered = sorted(rows, key=lambda key: -len(rows[key]))
        new = [self._new(key, _Sample.of(documents, rows[key])) for key in ordered if key not in self._by_parts]
        self._settle(new)
        out = documents.copy()
        out["PatternId"] = [self._by_parts[key] for key in keys]
        out["ClusterId"] = [self.cluster_of[self._by_parts[key]] for key in keys]
        return out

    def save(self, store: Store) -> None:
        """Write what is new or moved; what stands is not written again."""
        templates = {
            key: (index, atoms, self.book.aliases.get(key, ""))
            for index, (key, atoms) in enumerate(self.book.known()[:MOST_TEMPLATES])
        }
        rows = [
            {"TemplateId": key, "Atoms": list(atoms), "AliasOf": alias, "Place": place}
            for key, (place, atoms, alias) in templates.items()
            if self._saved_templates.get(key) != (place, atoms, alias)
        ]
        if rows:
            store.insert("failure_templates", pd.DataFrame(rows))
            self._saved_templates = templates
        moved = [
            self._row(item, place)
            for place, (key, item) in enumerate(self.patterns.items())
            if self._saved_patterns.get(key) != self.cluster_of[key]
        ]
        if moved:
            store.insert("failure_patterns", pd.DataFrame(moved))
            self._saved_patterns = {key: self.cluster_of[key] for key in self.patterns}

    def _row(self, item: Pattern, place: int) -> dict[str, Any]:
        return {
            "PatternId": item.pattern_id,
            "TemplateId": item.template_id,
            "ErrorType": item.error_type,
            "Code": item.code,
            "Stage": item.stage,
            "Frames": list(item.frames),
            "Scene": item.scene,
            "ClusterId": self.cluster_of[item.pattern_id],
            "Place": place,
        }

    def _new(self, parts: Parts, sample: _Sample) -> Pattern:
        template, kind, code, stage = parts
        digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        scene = scenes.name(f"{kind} {sample.message}", tool=bool(sample.tool), facts=_usual(sample.contexts))
        return Pattern(digest, template, self.book.atoms(template), kind, code, stage, sample.frames, scene)

    def _settle(self, new: Sequence[Pattern]) -> None:
        known = list(self.patterns.values())
        self.cluster_of.update(assign(new, known, self.cluster_of, self.apart))
        for index, item in enumerate(new):
            self._by_parts[self._parts(item)] = item.pattern_id
            if index < MOST_AT_ONCE:
                self.patterns[item.pattern_id] = item

    def _join(self) -> None:
        """Templates became one: their patterns share the cluster of the oldest, unless a person keeps them apart."""
        oldest: dict[Parts, str] = {}
        for key, item in self.patterns.items():
            first = oldest.setdefault(self._parts(item), key)
            one, other = self.cluster_of[first], self.cluster_of[key]
            if not {frozenset((one, other)), frozenset((one, key)), frozenset((first, key))} & self.apart:
                self.cluster_of[key] = one
        self._by_parts = {**oldest}

    def _parts(self, item: Pattern) -> Parts:
        return (self.book.resolve(item.template_id), item.error_type, item.code, item.stage)


def _usual(contexts: Sequence[Iterable[tuple[str, str]]]) -> dict[str, float]:
    """The median of each measured fact over the rows of a pattern."""
    seen: dict[str, list[float]] = {}
    for context in contexts:
        for name, value in context:
            if name != "declared_type":
                seen.setdefault(str(name), []).append(float(value))
    return {name: sorted(values)[len(values) // 2] for name, values in seen.items()}


def same(store: Store, one: str, other: str, note: str = "") -> None:
    """A person says: these two clusters are one problem."""
    _verdict(store, one, other, 1, note)


def not_same(store: Store, one: str, other: str, note: str = "") -> None:
    """A person says: these are two problems. `other` may be a pattern of cluster `one`: it becomes a cluster of its own."""
    if not other.startswith("fc-"):
        store.command(
            "INSERT INTO failure_patterns SELECT PatternId, TemplateId, ErrorType, Code, Stage, Frames, Scene, "
            "{cluster:String}, Place, now64(3) FROM failure_patterns FINAL WHERE PatternId = {pattern:String}",
            cluster=cluster_name(other),
            pattern=other,
        )
    _verdict(store, one, other, 0, note)


def _verdict(store: Store, one: str, other: str, value: int, note: str) -> None:
    first, second = (one, other) if value == 0 else sorted((one, other))
    store.insert("failure_verdicts", pd.DataFrame([{"One": first, "Other": second, "Same": value, "Note": note}]))
