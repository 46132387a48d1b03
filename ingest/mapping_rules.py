"""Reads `stages.toml`: which attribute says what about a span. A wrong file stops at start and names the place.

Must stay true: everything an edited file may say is checked here, so that `mapping` only ever sees sound rules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ingest.errors import BadSetting

KINDS = (
    "parse",
    "decide",
    "fetch",
    "generate",
    "aggregate",
    "check",
    "render",
    "embed",
    "rerank",
    "agent",
    "wait",
    "other",
)
TEXT_COLUMNS = ("Tier", "Model", "Tool", "Region", "Device", "UserTier", "UserId", "SessionId", "Version", "Host")
NUMBER_COLUMNS = ("InputTokens", "CachedTokens", "OutputTokens", "PayloadBytes", "Items", "Rows", "Retries")
NS_PER_UNIT = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
SECTIONS = ("text", "number", "time", "evidence", "stage", "kind", "wait", "engine", "failed", "budget", "need")
FAILED_KEYS = ("type", "message", "http_status", "results", "result")
MAX_CANDIDATES = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place where a value may stand. `unit` is that of the value; `when` holds (attribute, allowed values)."""

    key: str = ""
    unit: str = ""
    count: bool = False
    prefix: str = ""
    suffix: str = ""
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def plain(self) -> bool:
        return not (self.count or self.prefix or self.suffix or self.when)


@dataclass(frozen=True, slots=True)
class StageRule:
    """Spans whose name matches `span` are called `parts`: literal texts and ("{key}") attributes in turn."""

    span: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindRule:
    attribute: tuple[tuple[str, tuple[str, ...]], ...]
    span: str
    stage: str
    span_kind: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class FailedRule:
    type: tuple[Candidate, ...]
    message: tuple[Candidate, ...]
    http_status: int
    results: tuple[Candidate, ...]
    result: str


@dataclass(frozen=True, slots=True)
class Rules:
    """A sound stages.toml. `budgets` are milliseconds a run by kind; `needs` are what a purpose needs; `engine` are the names of
    spans that tell a model server's part of a call (docs/mapping.md)."""

    columns: Mapping[str, tuple[Candidate, ...]]
    evidence: Mapping[str, tuple[Candidate, ...]]
    stage_names: tuple[Candidate, ...]
    stage_rules: tuple[StageRule, ...]
    max_length: int
    max_words: int
    kinds: tuple[KindRule, ...]
    wait_kinds: tuple[str, ...]
    failed: FailedRule
    budgets: Mapping[str, float]
    needs: Mapping[str, float]
    engine: str = ""


def read_rules(path: str | Path | None = None) -> Rules:
    """The rules in `path`, or those that come with the package. Raises BadSetting with the place of the fault."""
    name = str(path) if path else "stages.toml of the package"
    try:
        raw = Path(path).read_bytes() if path else (resources.files("ingest") / "stages.toml").read_bytes()
        return _Reader(name).rules(tomllib.loads(raw.decode("utf-8")))
    except OSError as err:
        raise BadSetting("STAGESCOPE_STAGES", name, f"a file that can be read ({err.strerror})") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise BadSetting("STAGESCOPE_STAGES", name, f"TOML in UTF-8 ({err})") from err


class _Reader:
    """Checks one document; every complaint carries the file and the place inside it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def rules(self, doc: Mapping[str, Any]) -> Rules:
        self.known("top level", doc, SECTIONS)
        wait, stage = (
            self.table(doc, "wait", ("kinds",)),
            self.table(doc, "stage", ("names", "max_length", "max_words", "rule")),
        )
        return Rules(
            columns=self.columns(doc),
            evidence=self.evidence(doc),
            stage_names=self.candidates("stage.names", stage.get("names", [])),
            stage_rules=tuple(
                self.stage_rule(f"stage.rule[{i}]", rule) for i, rule in enumerate(self.tables(stage, "rule"))
            ),
            max_length=int(self.number("stage.max_length", stage.get("max_length", 120), 16)),
            max_words=int(self.number("stage.max_words", stage.get("max_words", 10), 1)),
            kinds=tuple(self.kind_rule(f"kind[{i}]", rule) for i, rule in enumerate(self.tables(doc, "kind"))),
            wait_kinds=self.texts("wait.kinds", wait.get("kinds", [])),
            failed=self.failed(self.table(doc, "failed", FAILED_KEYS)),
            budgets=self.numbers(doc, "budget", (*KINDS, "gap")),
            needs=self.numbers(doc, "need", ("prompt_tokens", "prompt_tokens_per_item", "payload_bytes")),
            engine=self.pattern("engine.span", self.table(doc, "engine", ("span",)).get("span", "")),
        )

    def wrong(self, place: str, value: object, expected: str) -> BadSetting:
        return BadSetting("STAGESCOPE_STAGES", f"{self.name}: {place} = {value!r}", expected)

    def known(self, place: str, found: Mapping[str, Any], allowed: Sequence[str]) -> None:
        for key in found:
            if key not in allowed:
                raise self.wrong(place, key, f"one of {', '.join(allowed)}")

    def table(self, doc: Mapping[str, Any], name: str, allowed: Sequence[str] = ()) -> Mapping[str, Any]:
        found = doc.get(name, {})
        if not isinstance(found, dict):
            raise self.wrong(name, found, "a table")
        if allowed:
            self.known(name, found, allowed)
        return found

    def tables(self, doc: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
        found = doc.get(name, [])
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.wrong(name, found, f"[[{name}]] tables")
        return found

    def number(self, place: str, value: object, least: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e12:
            raise self.wrong(place, value, f"a number from {least:g}")
        return float(value)

    def numbers(self, doc: Mapping[str, Any], name: str, allowed: Sequence[str]) -> Mapping[str, float]:
        found = self.table(doc, name, allowed)
        return {key: self.number(f"{name}.{key}", value, 0) for key, value in found.items()}

    def texts(self, place: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(
            isinstance(item, str) and item and "\x00" not in item for item in value
        ):
            raise self.wrong(place, value, "a list of texts")
        return tuple(value)

    def columns(self, doc: Mapping[str, Any]) -> Mapping[str, tuple[Candidate, ...]]:
        sections = (("text", TEXT_COLUMNS), ("number", NUMBER_COLUMNS), ("time", ("WaitTime",)))
        return {
            column: self.candidates(
                f"{section}.{column}", self.table(doc, section, allowed).get(column, []), section == "time"
            )
            for section, allowed in sections
            for column in allowed
        }

    def evidence(self, doc: Mapping[str, Any]) -> Mapping[str, tuple[Candidate, ...]]:
        found: dict[str, tuple[Candidate, ...]] = {}
        for name, value in self.table(doc, "evidence").items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
                raise self.wrong("evidence", name, "names of small letters, digits and _")
            found[name] = self.candidates(f"evidence.{name}", value, timed=name.endswith(("_ms", "_s")))
            if not all(item.plain for item in found[name]):
                raise self.wrong(f"evidence.{name}", value, "attribute keys, with no count, prefix or when")
        return found

    def candidates(self, place: str, value: object, timed: bool = False) -> tuple[Candidate, ...]:
        if not isinstance(value, list) or len(value) > MAX_CANDIDATES:
            raise self.wrong(place, value, f"a list of up to {MAX_CANDIDATES} attribute keys")
        return tuple(self.candidate(f"{place}[{i}]", item, timed) for i, item in enumerate(value))

    def candidate(self, place: str, value: object, timed: bool) -> Candidate:
        if isinstance(value, str) and value:
            return Candidate(key=value)
        if not isinstance(value, dict):
            raise self.wrong(place, value, 'an attribute key, or a table such as {key = "…", unit = "s"}')
        self.known(place, value, ("key", "unit", "count", "prefix", "suffix", "when"))
        texts = {name: value.get(name, "") for name in ("key", "unit", "prefix", "suffix")}
        if not all(isinstance(text, str) for text in texts.values()) or bool(texts["key"]) == bool(texts["prefix"]):
            raise self.wrong(place, value, "either a key or a prefix, as text")
        if texts["unit"] and (not timed or texts["unit"] not in NS_PER_UNIT):
            raise self.wrong(f"{place}.unit", texts["unit"], "s, ms, us or ns, and only for times (names in _ms or _s)")
        if value.get("count", False) not in (True, False):
            raise self.wrong(f"{place}.count", value["count"], "true or false")
        return Candidate(
            **texts, count=bool(value.get("count")), when=self.conditions(f"{place}.when", value.get("when", {}))
        )

    def conditions(self, place: str, value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
        if not isinstance(value, dict):
            raise self.wrong(place, value, 'a table such as {"key" = ["value"]}')
        return tuple((key, self.texts(f"{place}.{key}", values)) for key, values in value.items())

    def pattern(self, place: str, value: object) -> str:
        """A regular expression for RE2; Python's engine checks it, and look-around and back-references are refused."""
        if not isinstance(value, str) or re.search(r"\(\?(?:=|!|<=|<!|>|\()|\\[1-9]", value):
            raise self.wrong(place, value, "a regular expression without look-around or back-references")
        try:
            re.compile(value)
        except re.error as err:
            raise self.wrong(place, value, f"a regular expression ({err})") from None
        return value

    def stage_rule(self, place: str, rule: Mapping[str, Any]) -> StageRule:
        self.known(place, rule, ("span", "name"))
        name = rule.get("name")
        if not isinstance(name, str) or not name:
            raise self.wrong(f"{place}.name", name, 'a text such as "{span} {http.route}"')
        parts = tuple(part for part in re.split(r"(\{[^{}]+\})", name) if part)
        return StageRule(self.pattern(f"{place}.span", rule.get("span", "")), parts)

    def kind_rule(self, place: str, rule: Mapping[str, Any]) -> KindRule:
        self.known(place, rule, ("attribute", "span", "stage", "span_kind", "kind"))
        kind = rule.get("kind")
        if not isinstance(kind, str) or not (kind in KINDS or re.fullmatch(r"\{[^{}]+\}", kind)):
            raise self.wrong(f"{place}.kind", kind, f"one of {', '.join(KINDS)}, or {{attribute}}")
        found = KindRule(
            attribute=self.conditions(f"{place}.attribute", rule.get("attribute", {})),
            span=self.pattern(f"{place}.span", rule.get("span", "")),
            stage=self.pattern(f"{place}.stage", rule.get("stage", "")),
            span_kind=self.texts(f"{place}.span_kind", rule.get("span_kind", [])),
            kind=kind,
        )
        if not (found.attribute or found.span or found.stage or found.span_kind):
            raise self.wrong(place, dict(rule), "at least one of attribute, span, stage, span_kind")
        return found

    def failed(self, found: Mapping[str, Any]) -> FailedRule:
        return FailedRule(
            type=self.candidates("failed.type", found.get("type", [])),
            message=self.candidates("failed.message", found.get("message", [])),
            http_status=int(self.number("failed.http_status", found.get("http_status", 500), 100)),
            results=self.candidates("failed.results", found.get("results", [])),
            result=self.pattern("failed.result", found.get("result", "")),
        )
