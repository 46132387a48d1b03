"""Slots learned from patterns alone: which patterns are one but for a word that names something.

Must stay true: proof counts distinct words, never volumes, so more of the same traffic joins nothing new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from analytics.templates_mask import HOLE
from analytics.templates_words import CUES, EXCEPTION_ENDINGS, MODALS, STATES, STOP

Pattern = tuple[str, tuple[str, ...]]
_MARKS = frozenset("=:,;|()[]{}<>\"'`")
LONGEST = 60
LONGEST_FOR_PAIRS = 30
MOST_FOR_PAIRS = 3000


def merges(patterns: Sequence[Pattern]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield (merged atoms, ids oldest first) for every proven join; `patterns` come oldest first."""
    groups = {key: [key] for key, _ in patterns}
    atoms_of = dict(patterns)
    rank = {key: index for index, (key, _) in enumerate(patterns)}
    touched: set[str] = set()
    for width in (1, 2):
        for _ in range(4 if width == 1 or len(groups) <= MOST_FOR_PAIRS else 0):
            if not _round(width, groups, atoms_of, rank, touched):
                break
    for key in sorted(touched & set(groups), key=lambda item: rank[item]):
        yield atoms_of[key], sorted(groups[key], key=lambda item: rank[item])


def _round(
    width: int,
    groups: dict[str, list[str]],
    atoms_of: dict[str, tuple[str, ...]],
    rank: dict[str, int],
    touched: set[str],
) -> bool:
    buckets: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for key in groups:
        atoms = atoms_of[key]
        if len(atoms) <= (LONGEST if width == 1 else LONGEST_FOR_PAIRS):
            for slot in _slots(len(atoms), width):
                buckets[(slot, _holed(atoms, slot))].append(key)
    changed = False
    for (slot, merged), keys in sorted(buckets.items(), key=lambda item: -len(item[1])):
        alive = [key for key in keys if key in groups]
        allowed = _proven(alive, atoms_of, slot, merged)
        if len(allowed) < 2:
            continue
        changed = True
        allowed.sort(key=lambda item: rank[item])
        oldest = allowed[0]
        for key in allowed[1:]:
            groups[oldest] += groups.pop(key)
        atoms_of[oldest] = merged
        touched.add(oldest)
    return changed


def _slots(length: int, width: int) -> Iterator[tuple[int, ...]]:
    if width == 1:
        yield from ((index,) for index in range(length))
    else:
        yield from ((a, b) for a in range(length) for b in range(a + 1, length))


def _holed(atoms: tuple[str, ...], slot: tuple[int, ...]) -> tuple[str, ...]:
    out = list(atoms)
    for index in slot:
        out[index] = HOLE
    return tuple(out)


def _proven(
    keys: list[str], atoms_of: dict[str, tuple[str, ...]], slot: tuple[int, ...], merged: tuple[str, ...]
) -> list[str]:
    if len(keys) < 2:
        return []
    values = {tuple(atoms_of[key][index] for index in slot) for key in keys}
    if len(values) < 2 or any(len({value[place] for value in values}) < 2 for place in range(len(slot))):
        return []
    naming = any(_naming(merged, index) for index in slot)
    many = len(slot) == 1 and len(values) >= 5
    allowed = [
        key for key in keys if all(_may_vary(atoms_of[key], index, _naming(merged, index), many) for index in slot)
    ]
    distinct = {tuple(atoms_of[key][index] for index in slot) for key in allowed}
    points = sum(2 if HOLE in value else 1 for value in distinct) + (2 if naming else 0)
    constant = sum(atom.isalpha() and atom not in _MARKS for atom in merged)
    need = 6 if len(slot) == 2 else 4 if constant >= 2 else 7
    return allowed if constant >= 1 and points >= need else []


def _naming(atoms: tuple[str, ...], index: int) -> bool:
    if index == 0:
        return False
    before = atoms[index - 1]
    if before == "=":
        return True
    if before in ":[(\"'" and index >= 2:
        before = atoms[index - 2]
    return before.lower() in CUES


def _may_vary(atoms: tuple[str, ...], index: int, naming: bool, many: bool) -> bool:
    atom = atoms[index]
    if atom == HOLE:
        return True
    if index == 0 or atom in _MARKS or atom.endswith(EXCEPTION_ENDINGS):
        return False
    word = atom.lower()
    if word in STOP:
        return False
    if many or naming:
        return True
    before = atoms[index - 1].lower()
    if before in MODALS or (before == "to" and index >= 2 and atoms[index - 2].lower() in ("failed", "unable")):
        return False
    return word not in STATES and not word.endswith(("ed", "ing"))
