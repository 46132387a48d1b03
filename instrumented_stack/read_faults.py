"""The [[fault]] tables of a scenario. A fault that could never act, or acts where it has no meaning, is refused with its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from instrumented_stack.catalogue import POOLS, STAGES, TASKS, TOOLS_BY_NAME
from instrumented_stack.scenario import (
    GPU_KINDS,
    KINDS,
    MODEL_KINDS,
    TOOL_KINDS,
    WHERE_KEYS,
    Fault,
    Rollout,
    Scenario,
    Switches,
    runs_model,
)
from instrumented_stack.toml_table import Table, suggest


def read_faults(scenario: Scenario, tables: Sequence[Table]) -> Scenario:
    """The scenario with its faults, and with a roll-out for each regression that names none."""
    faults = tuple(_fault(table, scenario) for table in tables)
    rollouts = list(scenario.rollouts)
    known = {*scenario.traffic.versions, *(item.version for item in rollouts)}
    placed = []
    for fault in faults:
        if fault.kind == "regression":
            versions = fault.where.get("version") or (_next_version(sorted(known)),)
            for version in versions:
                if version not in known:
                    rollouts.append(Rollout(version, fault.start_s, 0.5))
                    known.add(version)
            fault = replace(fault, where={**fault.where, "version": versions})
        placed.append(fault)
    return replace(scenario, faults=tuple(placed), rollouts=tuple(rollouts))


def _next_version(known: Sequence[str]) -> str:
    last = known[-1] if known else "1.0.0"
    head, dot, tail = last.rpartition(".")
    return f"{head}{dot}{int(tail) + 1}" if tail.isdigit() else f"{last}.1"


def _fault(table: Table, scenario: Scenario) -> Fault:
    table.known(("kind", "stage", "start", "end", "strength", "where"))
    if "kind" not in table.values:
        raise table.refuse("kind", f"missing; one of {', '.join(KINDS)}")
    kind = table.choice("kind", "", KINDS)
    stage = table.choice("stage", "data_fetch" if kind in TOOL_KINDS else "*", (*STAGES, "*"))
    _meaningful(table, kind, stage, scenario.switches)
    start = table.seconds("start", 0.0, scenario.seconds)
    end = table.seconds("end", scenario.seconds, scenario.seconds)
    if start >= scenario.seconds:
        raise table.refuse("start", f"{start:g} s is after the run's end at {scenario.seconds:g} s")
    if end <= start:
        raise table.refuse("end", f"{end:g} s is not after start {start:g} s")
    if end > scenario.seconds * (1 + 1e-9):
        raise table.refuse("end", f"{end:g} s is after the run's end at {scenario.seconds:g} s")
    strength = table.number_of("strength", 1.0, 0.0, 1_000.0)
    if strength == 0:
        raise table.refuse("strength", "0 would do nothing")
    where = _where(table, scenario, kind)
    _reachable(table, stage, where)
    if kind == "dimension_specific" and not where:
        raise table.refuse("where", "dimension_specific needs where = {dimension = value}")
    return Fault(kind, stage, start, min(end, scenario.seconds), strength, where)


def _meaningful(table: Table, kind: str, stage: str, switches: Switches) -> None:
    if stage == "*":
        return
    makes_model = kind in ("prompt_bloat", "oversized_model") and stage == "tool_select"
    if kind in MODEL_KINDS and not makes_model and not runs_model(stage, switches):
        need = "a GPU" if kind in GPU_KINDS else "a model"
        raise table.refuse("stage", f"{kind} needs a stage that uses {need}; {stage} does not in this set-up")
    if kind in TOOL_KINDS and stage != "data_fetch":
        raise table.refuse("stage", f"{kind} needs a stage that calls tools (data_fetch), not {stage}")
    if stage == "human_approval":
        raise table.refuse("stage", "human_approval is a wait for a person; nothing in the stack can make it slow")


def _reachable(table: Table, stage: str, where: Mapping[str, Sequence[str]]) -> None:
    """Refuse a `where` that no run of this stage can meet."""
    if stage == "*":
        return
    pools = {STAGES[stage].pool, "core"} if STAGES[stage].uses_model else {STAGES[stage].pool}
    for key, possible in (("tier", pools), ("service", {POOLS[pool] for pool in pools})):
        if key in where and not possible & set(where[key]):
            raise table.refuse(
                "where", f"{stage} never runs on {key} = {where[key][0]!r}; one of {', '.join(sorted(possible))}"
            )
    if "tool" in where and stage != "data_fetch":
        raise table.refuse("where", f"{stage} calls no tool; only data_fetch does")


def unknown_hosts(scenario: Scenario, hosts: Mapping[str, Sequence[str]], tables: Sequence[Table]) -> None:
    """Refuse a fault on a host that this scenario does not have; `hosts` are known only when all faults are."""
    every = [host for group in hosts.values() for host in group]
    for fault, table in zip(scenario.faults, tables, strict=True):
        for host in fault.where.get("host", ()):
            if host not in every:
                have = ", ".join(f"{pool}-1 to {pool}-{len(group)}" for pool, group in hosts.items())
                raise table.refuse("where", f"there is no host {host!r}{suggest(host, every)}; there are {have}")


def _where(table: Table, scenario: Scenario, kind: str) -> dict[str, tuple[str, ...]]:
    given = table.values.get("where", {})
    if not isinstance(given, dict):
        raise table.refuse("where", f"must be written as where = {{ dimension = value }}, not {given!r}")
    inner = Table(table.source, table.name, given, table.number)
    for key in inner.values:
        if key not in WHERE_KEYS:
            raise table.refuse(
                "where", f"unknown dimension {key!r}{suggest(key, WHERE_KEYS)}; one of {', '.join(WHERE_KEYS)}"
            )
    out: dict[str, tuple[str, ...]] = {}
    for key, value in inner.values.items():
        values = tuple(str(item) for item in (value if isinstance(value, list) else [value]))
        if not values or any(isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value])):
            raise table.refuse("where", f"{key} must be a value or a list of values, not {value!r}")
        allowed = _values(key, scenario)
        for item in values:
            if allowed and item not in allowed and not (key == "version" and kind == "regression"):
                raise table.refuse(
                    "where", f"no request will ever have {key} = {item!r}; one of {', '.join(sorted(allowed))}"
                )
        out[key] = values
    return out


def _values(key: str, scenario: Scenario) -> set[str]:
    """All values that `key` can take in this scenario; empty when they are not known beforehand."""
    traffic = scenario.traffic
    table: dict[str, set[str]] = {
        "region": set(traffic.regions),
        "device": set(traffic.devices),
        "user_tier": set(traffic.tiers),
        "version": {*traffic.versions, *(item.version for item in scenario.rollouts)},
        "tool": set(TOOLS_BY_NAME),
        "task": set(TASKS),
        "tier": set(POOLS),
        "service": {*POOLS.values(), "orchestrator", "gateway"},
        "model": {engine.model for engine in scenario.switches.engines.values()},
    }
    return table.get(key, set())
