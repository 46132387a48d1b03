"""Which messages are the same pattern: exact skeleton first, then learned slots; a pattern keeps its id for good.

Must stay true: assigning one by one gives the same groups as all at once, and learning only ever joins (the oldest id stays).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analytics.templates_learn import merges
from analytics.templates_mask import CACHE_SIZE, HOLE, mask_token, reduce, split


class _Masked(dict[str, str]):
    """Raw token → masked token, remembered; emptied when it grows past CACHE_SIZE."""

    def __missing__(self, token: str) -> str:
        if len(self) >= CACHE_SIZE:
            self.clear()
        found = self[token] = mask_token(token)
        return found


class Templates:
    """A book of patterns. `assign` gives each message its id; `learn` finds slots and returns which ids became aliases."""

    def __init__(
        self, known: Iterable[tuple[str, tuple[str, ...]]] = (), aliases: Mapping[str, str] | None = None
    ) -> None:
        self._tokens = _Masked()
        self._lines: dict[str, str] = {}
        self._exact: dict[tuple[str, ...], str] = {}
        self._order: dict[str, tuple[str, ...]] = {}
        self._aliases: dict[str, str] = dict(aliases or {})
        self._trie: dict[str, Any] = {}
        for template_id, atoms in known:
            self._add(template_id, atoms)

    def assign(self, messages: Iterable[str]) -> list[str]:
        """The pattern id of each message, in order; unseen patterns get an id of their own."""
        lines, mask = self._lines, self._tokens.__getitem__
        out: list[str] = []
        for message in messages:
            key = " ".join(map(mask, split(message)))
            found = lines.get(key)
            if found is None:
                if len(lines) >= CACHE_SIZE:
                    lines.clear()
                found = lines[key] = self._place(reduce(key.split()))
            out.append(found)
        return out

    def text(self, template_id: str) -> str:
        """The pattern as people read it."""
        return readable(self._order[self.resolve(template_id)])

    def atoms(self, template_id: str) -> tuple[str, ...]:
        return self._order[self.resolve(template_id)]

    def resolve(self, template_id: str) -> str:
        """The id that stands for this one now."""
        while template_id in self._aliases:
            template_id = self._aliases[template_id]
        return template_id

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._aliases

    def known(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Every id with its atoms, oldest first; feed it to a new book to go on where this one stood."""
        return tuple(self._order.items())

    def learn(self) -> dict[str, str]:
        """Join patterns that differ in a proven slot. Returns new aliases {younger id: oldest id}."""
        current = [(key, atoms) for key, atoms in self._order.items() if key not in self._aliases]
        joined: dict[str, str] = {}
        for merged, members in merges(current):
            oldest = members[0]
            self._exact.setdefault(merged, oldest)
            self._order[oldest] = merged
            self._grow(merged, oldest)
            for member in members[1:]:
                joined[member] = self._aliases[member] = oldest
        self._lines.clear()
        return joined

    def _place(self, atoms: tuple[str, ...]) -> str:
        found = self._exact.get(atoms)
        if found is None:
            found = self._match(atoms) or self._new(atoms)
            self._exact[atoms] = found
        return self.resolve(found)

    def _new(self, atoms: tuple[str, ...]) -> str:
        digest = hashlib.sha256("\x1f".join(atoms).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        self._order[digest] = atoms
        return digest

    def _add(self, template_id: str, atoms: tuple[str, ...]) -> None:
        self._order[template_id] = atoms
        self._exact.setdefault(atoms, template_id)
        if HOLE in atoms:
            self._grow(atoms, template_id)

    def _grow(self, atoms: tuple[str, ...], template_id: str) -> None:
        node = self._trie.setdefault(str(len(atoms)), {})
        for atom in atoms:
            node = node.setdefault(atom, {})
        node.setdefault("", template_id)

    def _match(self, atoms: tuple[str, ...]) -> str | None:
        stack = [(self._trie.get(str(len(atoms)), {}), 0)]
        while stack:
            node, depth = stack.pop()
            if depth == len(atoms):
                if "" in node:
                    return str(node[""])
                continue
            if HOLE in node:
                stack.append((node[HOLE], depth + 1))
            if atoms[depth] != HOLE and atoms[depth] in node:
                stack.append((node[atoms[depth]], depth + 1))
        return None


def readable(atoms: Sequence[str]) -> str:
    """A pattern as people write it."""
    text = " ".join(atoms)
    for mark in ",;:)]}.=":
        text = text.replace(f" {mark}", mark)
    for mark in "([{=":
        text = text.replace(f"{mark} ", mark)
    return text or "(empty message)"
