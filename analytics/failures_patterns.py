"""Which pattern and cluster each failure belongs to, remembered in the store so that an id lasts over weeks.

Must stay true: a pattern keeps its cluster for good, except where a person said otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analytics import scenes
from analytics.failures_group import MOST_AT_ONCE, Pattern, assign, cluster_name
from analytics.failures_load import records
from analytics.failures_text import status_code
from analytics.templates import Templates
from ingest.store import Store

MOST_TEMPLATES = 20_000


class Patterns:
    """The book of templates, the patterns made of them, their clusters, and people's verdicts."""

    def __init__(
        self, book: Templates, patterns: Iterable[Pattern] = (), clusters: Mapping[str, str] | None = None
    ) -> None:
        self.book = book
        self.patterns: dict[str, Pattern] = {item.pattern_id: item for item in patterns}
        self.cluster_of: dict[str, str] = dict(clusters or {})
        self.apart: frozenset[frozenset[str]] = frozenset()
        self._by_parts: dict[tuple[str, ...], str] = {}
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
        out = documents.copy()
        first = self.book.assign(out["Message"].tolist())
        if len(self.book.known()) <= MOST_TEMPLATES and self.book.learn():
            self._join()
        out["_template"] = [self.book.resolve(item) for item in first]
        codes = {text: status_code("", text) for text in set(out["Message"])}
        out["_code"] = [codes[text] for text in out["Message"]]
        keys = ["_template", "ErrorType", "_code", "Stage"]
        ids: dict[tuple[str, ...], str] = {}
        new: list[Pattern] = []
        groups = out.groupby(keys, sort=False, observed=True)
        sizes = groups.agg(n=("Message", "size"), at=("Timestamp", "idxmin"))
        for row in records(sizes.sort_values("n", ascending=False, kind="stable").reset_index()):
            key = tuple(str(row[name]) for name in keys)
            known = self._by_parts.get(key)
            if known is None:
                item = self._new(key, out.loc[row["at"]], _usual(groups.get_group(key)["Context"]))
                new.append(item)
                known = item.pattern_id
            ids[key] = known
        self._settle(new)
        out["PatternId"] = [ids[tuple(map(str, parts))] for parts in out[keys].itertuples(index=False)]
        out["ClusterId"] = out["PatternId"].map(self.cluster_of)
        return out.drop(columns=["_template", "_code"])

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

    def _new(self, parts: tuple[str, ...], example: Any, facts: Mapping[str, float]) -> Pattern:
        template, kind, code, stage = parts
        digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        scene = scenes.name(f"{kind} {example['Message']}", tool=bool(example["Tool"]), facts=facts)
        return Pattern(digest, template, self.book.atoms(template), kind, code, stage, tuple(example["Frames"]), scene)

    def _settle(self, new: Sequence[Pattern]) -> None:
        known = list(self.patterns.values())
        self.cluster_of.update(assign(new, known, self.cluster_of, self.apart))
        for index, item in enumerate(new):
            self._by_parts[self._parts(item)] = item.pattern_id
            if index < MOST_AT_ONCE:
                self.patterns[item.pattern_id] = item

    def _join(self) -> None:
        """Templates became one: their patterns share the cluster of the oldest, unless a person keeps them apart."""
        oldest: dict[tuple[str, ...], str] = {}
        for key, item in self.patterns.items():
            first = oldest.setdefault(self._parts(item), key)
            one, other = self.cluster_of[first], self.cluster_of[key]
            if not {frozenset((one, other)), frozenset((one, key)), frozenset((first, key))} & self.apart:
                self.cluster_of[key] = one
        self._by_parts = {**oldest}

    def _parts(self, item: Pattern) -> tuple[str, ...]:
        return (self.book.resolve(item.template_id), item.error_type, item.code, item.stage)


def _usual(contexts: pd.Series[Any], most: int = 200) -> dict[str, float]:
    """The median of each measured fact over (up to 200 of) the rows of a pattern."""
    seen: dict[str, list[float]] = {}
    for context in contexts.head(most):
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
