"""Small pieces of SQL for `mapping`: integer codes for attribute keys, literals, counts of keys.

Must stay true: text from a settings file reaches SQL only through `quote`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.mapping_rules import NS_PER_UNIT, Candidate

SLOTS = 64


def quote(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    escaped = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f"'{escaped}'"


@dataclass(slots=True)
class Facts:
    """Attribute keys by fact: a fact is a value wanted, its number × 64 + place in the list is the code of a key."""

    keys: list[tuple[str, ...]] = field(default_factory=list)

    def number(self, keys: tuple[str, ...]) -> int:
        if keys not in self.keys:
            self.keys.append(keys)
        return self.keys.index(keys) + 1

    def layers(self) -> Sequence[Mapping[str, int]]:
        """Tables of key → code; a key wanted by several facts stands in several tables."""
        layers: list[dict[str, int]] = []
        for number, keys in enumerate(self.keys, start=1):
            for place, key in enumerate(dict.fromkeys(keys)):
                layer = next((table for table in layers if key not in table), None)
                if layer is None:
                    layers.append(layer := {})
                layer[key] = number * SLOTS + place
        return layers


def keys_of(run: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(item.key for item in run)


def runs(found: Sequence[Candidate]) -> Sequence[tuple[Candidate, ...]]:
    """Neighbours that can be looked up together, in order."""
    runs: list[tuple[Candidate, ...]] = []
    for item in found:
        if runs and item.plain and runs[-1][-1].plain and item.unit == runs[-1][-1].unit:
            runs[-1] = (*runs[-1], item)
        else:
            runs.append((item,))
    return runs


def codes_sql(layer: Mapping[str, int], column: str, shift: int) -> str:
    keys = ", ".join(quote(key) for key in layer)
    codes = ", ".join(str(code + shift) for code in layer.values())
    return f"arrayMap(k -> toUInt16(transform(k, [{keys}], [{codes}], 0)), mapKeys({column}))"


def count_keys_sql(item: Candidate) -> str:
    tests = [f"startsWith(k, {quote(item.prefix)})"] + ([f"endsWith(k, {quote(item.suffix)})"] if item.suffix else [])
    return f"arrayCount(k -> {' AND '.join(tests)}, mapKeys(SpanAttributes))"


def unit_scales(name: str, found: Sequence[Candidate]) -> Sequence[float]:
    target = next((unit for unit in ("ms", "us", "ns", "s") if name.endswith(f"_{unit}")), "")
    return [NS_PER_UNIT[item.unit] / NS_PER_UNIT[target] if item.unit and target else 1.0 for item in found]
