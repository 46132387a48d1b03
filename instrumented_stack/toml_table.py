"""TOML tables read strictly: every key is asked for by type, whatever is left over or means nothing is refused with file and line."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from instrumented_stack.errors import ScenarioError

LONGEST_S = 3_653 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AT = re.compile(r"at line (\d+)")
_HEAD = re.compile(r"^\[\[?\s*([\w.\"'\s-]+?)\s*\]\]?\s*(?:#.*)?$")
_SPAN = re.compile(r"^\s*([0-9.]+)\s*(ms|s|m|h|d|w|%)\s*$")


class Source:
    """The text of one file; finds the line of a key so that a refusal can name it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ScenarioError(f"{path}: no such scenario file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{path}: cannot be read as text: {error}") from None

    def tree(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            found = _AT.search(str(error))
            line = int(found[1]) if found else self.text.count("\n") + 1
            raise ScenarioError(f"{self.path}:{line}: not valid TOML: {error}") from None

    def line(self, table: str, number: int, key: str) -> int:
        """1-based line of `key` in the `number`-th table called `table`; else of that table's head, or of what holds it; else 1."""
        first = re.escape(key.split(".")[0])
        wanted = re.compile(rf"^[\"']?{first}[\"']?\s*(=|\.)")
        seen, head, inside = -1, 0, table == ""
        for at, raw in enumerate(self.text.splitlines(), 1):
            text = raw.strip()
            if match := _HEAD.match(text):
                name = match[1].replace(" ", "")
                seen += name == table
                inside = name == table and seen == number
                if inside:
                    head = at
                elif seen in (number, -1) and name == f"{table}.{key}".lstrip("."):
                    return at
            elif inside and wanted.match(text):
                return at
        if not head and table:
            above, _, last = table.rpartition(".")
            return self.line(above, 0, last)
        return head or 1

    def refuse(self, table: str, key: str, reason: str, number: int = 0) -> ScenarioError:
        where = f"[{table}] " if table else ""
        return ScenarioError(f"{self.path}:{self.line(table, number, key)}: {where}{key}: {reason}")


class Table:
    """One table being read; every key taken is ticked off, and `end` refuses the rest."""

    def __init__(self, source: Source, name: str, values: Any, number: int = 0) -> None:
        self.source, self.name, self.number = source, name, number
        if not isinstance(values, dict):
            above, _, last = name.rpartition(".")
            raise source.refuse(above, last, f"must be a table, not {values!r}", number)
        self.values: dict[str, Any] = dict(values)

    def refuse(self, key: str, reason: str) -> ScenarioError:
        return self.source.refuse(self.name, key, reason, self.number)

    def known(self, names: Iterable[str]) -> None:
        """Refuse keys that nobody will read."""
        allowed = list(names)
        for key in self.values:
            if key not in allowed:
                raise self.refuse(key, f"unknown key{suggest(key, allowed)}; known: {', '.join(allowed)}")

    def number_of(self, key: str, default: float, low: float = 0.0, high: float = math.inf) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.refuse(key, f"must be a finite number, not {value!r}")
        if not low <= value <= high:
            raise self.refuse(key, f"must lie between {low:g} and {high:g}, not {value!r}")
        return float(value)

    def whole(self, key: str, default: int, low: int = 0, high: int = 2**31) -> int:
        value = self.number_of(key, default, low, high)
        if value != int(value):
            raise self.refuse(key, f"must be a whole number, not {value!r}")
        return int(value)

    def choice(self, key: str, default: str, allowed: Iterable[str]) -> str:
        value, names = self.values.get(key, default), list(allowed)
        if value not in names:
            raise self.refuse(key, f"{value!r} is unknown{suggest(str(value), names)}; one of {', '.join(names)}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, f"must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.refuse(key, f"must be text, not {value!r}")
        return value

    def seconds(self, key: str, default: float, whole_s: float = math.nan) -> float:
        """Seconds as a number, or text such as "90s", "15m", "2h", "3d", or "40%" of the whole run; ten years at most."""
        found = self._seconds(key, default, whole_s)
        if found > LONGEST_S:
            raise self.refuse(key, f"{found:g} s is longer than ten years")
        return found

    def _seconds(self, key: str, default: float, whole_s: float) -> float:
        value = self.values.get(key, default)
        if isinstance(value, str):
            match = _SPAN.match(value)
            if not match or (match[2] == "%" and math.isnan(whole_s)):
                raise self.refuse(key, f'must be seconds or text such as "90s", "15m", "2h", not {value!r}')
            try:
                amount = float(match[1])
            except ValueError:
                raise self.refuse(key, f"{match[1]!r} is not a number") from None
            return amount / 100 * whole_s if match[2] == "%" else amount * _UNITS[match[2]]
        return self.number_of(key, default)

    def mix(self, key: str, default: Mapping[str, float], allowed: Iterable[str] | None = None) -> Mapping[str, float]:
        """Weights by name, normalised to 1; a list of names means equal weights."""
        value = self.values.get(key, default)
        if isinstance(value, list):
            value = {str(name): 1.0 for name in value}
        if not isinstance(value, Mapping) or not value:
            raise self.refuse(key, f"must be a table of name = weight, not {value!r}")
        names = list(allowed) if allowed is not None else None
        for name, weight in value.items():
            if names is not None and name not in names:
                raise self.refuse(key, f"{name!r} is unknown{suggest(name, names)}; one of {', '.join(names)}")
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not (0 <= weight < math.inf):
                raise self.refuse(key, f"weight of {name!r} must be a finite number of 0 or more, not {weight!r}")
        total = sum(value.values())
        if not 0 < total < math.inf:
            raise self.refuse(key, f"weights add up to {'nothing' if total <= 0 else 'more than a number can hold'}")
        return {str(name): weight / total for name, weight in value.items() if weight > 0}


def suggest(word: str, names: Iterable[str]) -> str:
    """`, did you mean 'x'?` or nothing."""
    near = difflib.get_close_matches(word, list(names), 1)
    return f", did you mean {near[0]!r}?" if near else ""


def tables(source: Source, tree: Mapping[str, Any], name: str) -> list[Table]:
    """The array of tables called `name`."""
    value = tree.get(name, [])
    if not isinstance(value, list):
        raise source.refuse("", name, f"must be written as [[{name}]]")
    return [Table(source, name, item, number) for number, item in enumerate(value)]
