"""TOML file → Scenario. Whatever means nothing is refused before anything runs, with file, line and reason."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from instrumented_stack.catalogue import TASKS, TOOLS_BY_NAME
from instrumented_stack.errors import ScenarioError
from instrumented_stack.hardware import GPUS, MODELS
from instrumented_stack.scenario import (
    DEFAULT_ENGINES,
    DEFAULT_HOSTS,
    EngineChoice,
    Expect,
    Hardening,
    Rollout,
    Scenario,
    Switches,
    Traffic,
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"^\s*([0-9.]+)\s*(ms|s|m|h|d|w|%)\s*$")
SHAPES = ("steady", "day", "week")


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
            raise ScenarioError(f"{self.path}: not valid TOML: {error}") from None

    def line(self, table: str, number: int, key: str) -> int:
        """1-based line of `key` in the `number`-th table called `table`; of the table's head without such a key; else 1."""
        seen, head, inside = -1, 1, table == ""
        for at, raw in enumerate(self.text.splitlines(), 1):
            text = raw.strip()
            match = re.match(r"^\[\[?\s*([^\]]+?)\s*\]\]?", text)
            if match:
                same = match.group(1) == table
                seen += same
                inside = same and seen == number
                head = at if inside else head
            elif inside and re.match(rf"^[\"']?{re.escape(key.split('.')[0])}[\"']?\s*(=|\.)", text):
                return at
        return head

    def refuse(self, table: str, key: str, reason: str, number: int = 0) -> ScenarioError:
        where = f"[{table}] " if table else ""
        return ScenarioError(f"{self.path}:{self.line(table, number, key)}: {where}{key}: {reason}")


class Table:
    """One table being read; every key taken is ticked off, and `end` refuses the rest."""

    def __init__(self, source: Source, name: str, values: Any, number: int = 0) -> None:
        self.source, self.name, self.number = source, name, number
        if not isinstance(values, dict):
            raise source.refuse("", name.split(".")[-1], f"must be a table, not {values!r}")
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
        """Seconds as a number, or text such as "90s", "15m", "2h", "3d", or "40%" of the whole run."""
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
        if total <= 0:
            raise self.refuse(key, "weights add up to nothing")
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


def read(path: Path) -> Scenario:
    """The scenario in `path`. Raises ScenarioError with file, line and reason."""
    from instrumented_stack.read_faults import read_faults  # the other half of this reader

    source = Source(path)
    top = Table(source, "", source.tree())
    top.known(("title", "seconds", "seed", "sample_every", "traffic", "stack", "fault", "expect", "rollout"))
    seconds = top.seconds("seconds", 600.0)
    if seconds <= 0:
        raise top.refuse("seconds", "must be more than 0")
    traffic = _traffic(Table(source, "traffic", top.values.get("traffic", {})), seconds)
    switches = _switches(Table(source, "stack", top.values.get("stack", {})))
    rollouts = tuple(_rollout(item, seconds) for item in tables(source, top.values, "rollout"))
    expects = tuple(_expect(item) for item in tables(source, top.values, "expect"))
    plain = Scenario(
        name=path.stem,
        title=top.text("title", path.stem),
        seconds=seconds,
        seed=top.whole("seed", 1),
        sample_every_s=top.seconds("sample_every", 0.0),
        traffic=traffic,
        switches=switches,
        rollouts=rollouts,
        expects=expects,
    )
    return read_faults(plain, tables(source, top.values, "fault"))


def _traffic(table: Table, seconds: float) -> Traffic:
    table.known(item.name for item in fields(Traffic))
    arrivals = table.text("arrivals")
    path = (table.source.path.parent / arrivals) if arrivals else None
    if path is not None and not path.is_file():
        raise table.refuse("arrivals", f"no such file: {path}")
    return Traffic(
        rps=table.number_of("rps", 10.0, 1e-6, 100_000),
        arrivals=path,
        speedup=table.number_of("speedup", 1.0, 1e-6),
        shape=table.choice("shape", "steady", SHAPES),
        steps=tuple((item[0], item[1]) for item in _numbers(table, "steps", 2)),
        bursts=tuple((item[0], item[1], item[2]) for item in _numbers(table, "bursts", 3)),
        tasks=table.mix("tasks", Traffic().tasks, TASKS),
        regions=table.mix("regions", Traffic().regions),
        devices=table.mix("devices", Traffic().devices),
        tiers=table.mix("tiers", Traffic().tiers),
        versions=table.mix("versions", Traffic().versions),
        users=table.whole("users", 400, 1),
        input_scale=table.number_of("input_scale", 1.0, 0.01, 100),
        output_scale=table.number_of("output_scale", 1.0, 0.01, 100),
        bad_input=table.number_of("bad_input", 0.0, 0.0, 1.0),
        poll_s=table.number_of("poll_s", 0.0),
        slow_tools=_slow_tools(table),
    )


def _slow_tools(table: Table) -> dict[str, float]:
    value = table.values.get("slow_tools", {})
    inner = Table(table.source, "traffic.slow_tools", value)
    inner.known(TOOLS_BY_NAME)
    return {name: inner.number_of(name, 1.0, 0.001, 10_000) for name in inner.values}


def _numbers(table: Table, key: str, width: int) -> list[tuple[float, ...]]:
    value = table.values.get(key, [])
    good = isinstance(value, list) and all(isinstance(row, list) and len(row) == width for row in value)
    if not good or any(
        isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < math.inf
        for row in value
        for item in row
    ):
        raise table.refuse(key, f"must be a list of {width} finite numbers of 0 or more each, not {value!r}")
    return [tuple(float(item) for item in row) for row in value]


def _switches(table: Table) -> Switches:
    table.known([*(item.name for item in fields(Switches) if item.name != "engines"), "engine"])
    engines, given = dict(DEFAULT_ENGINES), Table(table.source, "stack.engine", table.values.get("engine", {}))
    given.known(DEFAULT_ENGINES)
    for pool, values in given.values.items():
        engines[pool] = _engine(Table(table.source, f"stack.engine.{pool}", values), DEFAULT_ENGINES[pool])
    hosts = Table(table.source, "stack.hosts", table.values.get("hosts", {}))
    hosts.known(DEFAULT_HOSTS)
    hard = Table(table.source, "stack.hardening", table.values.get("hardening", {}))
    defaults = Hardening()
    hard.known(item.name for item in fields(Hardening))
    return Switches(
        tool_select=table.choice("tool_select", "vector", ("vector", "prompt")),
        routing=table.choice("routing", "tiered", ("tiered", "all_core")),
        batch=table.choice("batch", "continuous", ("continuous", "static")),
        retries=table.whole("retries", 3, 0, 20),
        tool_timeout_s=table.number_of("tool_timeout_s", 30.0, 0.01),
        lock_timeout_s=table.number_of("lock_timeout_s", 3.0, 0.01),
        sampling=table.number_of("sampling", 1.0, 0.0, 1.0),
        host_spread=table.number_of("host_spread", 0.05, 0.0, 0.5),
        rate_limit=table.number_of("rate_limit", 1_000.0, 0.1),
        hosts={pool: hosts.whole(pool, 0, 0, 64) for pool in DEFAULT_HOSTS},
        engines=engines,
        tools=tuple(table.mix("tools", dict.fromkeys(TOOLS_BY_NAME, 1.0), TOOLS_BY_NAME)),
        hardening=Hardening(
            **{item.name: hard.flag(item.name, getattr(defaults, item.name)) for item in fields(Hardening)}
        ),
    )


def _engine(table: Table, default: EngineChoice) -> EngineChoice:
    table.known(item.name for item in fields(EngineChoice))
    return EngineChoice(
        gpu=table.choice("gpu", default.gpu, GPUS),
        model=table.choice("model", default.model, MODELS),
        max_num_seqs=table.whole("max_num_seqs", default.max_num_seqs, 1, 4096),
        block_tokens=table.whole("block_tokens", default.block_tokens, 1, 4096),
        prefix_caching=table.flag("prefix_caching", default.prefix_caching),
        max_model_len=table.whole("max_model_len", default.max_model_len, 16),
        kv_quota=table.number_of("kv_quota", default.kv_quota, 1e-6, 1.0),
    )


def _rollout(table: Table, seconds: float) -> Rollout:
    table.known(("version", "start", "share"))
    start = table.seconds("start", 0.0, seconds)
    if start >= seconds:
        raise table.refuse("start", f"the run is over after {seconds:g} s")
    return Rollout(table.text("version", "next"), start, table.number_of("share", 0.5, 0.0, 1.0))


def _expect(table: Table) -> Expect:
    table.known(item.name for item in fields(Expect))
    found = Expect(table.text("stage"), table.text("cause"), table.text("cluster"), table.flag("optional", False))
    if not (found.cluster or (found.stage and found.cause)):
        raise table.refuse("stage", "needs stage and cause, or cluster")
    return found
