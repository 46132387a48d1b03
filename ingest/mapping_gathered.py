"""Many facts at once: the few that a span has are gathered into short arrays, so that only those cost anything.

Must stay true: of several values of one fact the first counts, as in `_f` and `_v`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ingest.mapping_facts import SLOTS, quote

WHOLE_NUMBER = r"^([0-9]+)(\\.[0-9]*)?$"


def gathered(name: str, facts: Collection[int]) -> Mapping[str, str]:
    """`{name}c` and `{name}v`: the codes and values of these facts (and of those numbered between them)."""
    low, high = min(facts, default=0) * SLOTS, max(facts, default=0) * SLOTS + SLOTS - 1
    within = f"c BETWEEN {low} AND {high}"
    return {f"{name}c": f"arrayFilter(c -> {within}, _c)", f"{name}v": f"arrayFilter((v, c) -> {within}, _v, _c)"}


def facts_of(name: str) -> str:
    """The facts of the codes in `{name}c`."""
    return f"arrayMap(c -> toUInt16(intDiv(c, {SLOTS})), {name}c)"


def whole_numbers(texts: str) -> str:
    """Array(Nullable(UInt64)) of an array of texts: decimal fractions are cut, negative and unreadable values are unknown."""
    return f"arrayMap(v -> toUInt64OrNull(extract(v, '{WHOLE_NUMBER}')), {texts})"


def list_lengths(texts: str) -> str:
    """Array(Nullable(UInt64)) of an array of texts: how many elements the JSON in each has."""
    return f"arrayMap(v -> if(isValidJSON(v), JSONLength(v), NULL), {texts})"


def least_rule(name: str, exact: Mapping[tuple[int, str], int], filled: Mapping[int, int], none: int) -> str:
    """The least number that `exact` gives to a fact's value or `filled` to a fact that has one, else `none`."""
    if not exact and not filled:
        return str(none)
    told = ", ".join(quote(f"{fact}={value}") for fact, value in exact) or "''"
    found = ", ".join(map(str, exact.values())) or str(none)
    facts, rules = ", ".join(map(str, filled)) or "0", ", ".join(map(str, filled.values())) or str(none)
    by_value = f"transform(concat(toString(f), '=', v), [{told}], [{found}], {none})"
    by_fact = f"transform(f, [{facts}], [{rules}], {none})"
    first = f"arrayMap((f, v, u) -> toUInt16(if(u = 1, least({by_value}, {by_fact}), {none})), {name}f, {name}v, arrayEnumerateUniq({name}f))"
    return f"arrayMin(arrayPushBack({first}, {none}))"
