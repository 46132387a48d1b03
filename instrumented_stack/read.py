"""TOML file → Scenario. Whatever means nothing is refused before anything runs, with file, line and reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from instrumented_stack.catalogue import STAGES, TASKS, TOOLS_BY_NAME
from instrumented_stack.embeddings import EMBEDDINGS, INDEXES, missing
from instrumented_stack.hardware import GPUS, MODELS
from instrumented_stack.read_faults import read_faults, unknown_hosts
from instrumented_stack.scenario import (
    CAUSES,
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
from instrumented_stack.toml_table import Source, Table, suggest, tables
from instrumented_stack.traffic import peak_rps
from instrumented_stack.world import size

SHAPES = ("steady", "day", "week")


def read(path: Path) -> Scenario:
    """The scenario in `path`. Raises ScenarioError with file, line and reason."""
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
        sample_every_s=_sample_every(top),
        traffic=traffic,
        switches=switches,
        rollouts=rollouts,
        expects=expects,
    )
    faults = tables(source, top.values, "fault")
    whole = read_faults(plain, faults)
    unknown_hosts(whole, {pool: size(whole, pool, peak_rps(traffic)) for pool in DEFAULT_HOSTS}, faults)
    return whole


def _sample_every(top: Table) -> float:
    every = top.seconds("sample_every", 0.0)
    if 0 < every < 0.1:
        raise top.refuse("sample_every", f"{every:g} s is too often; at least 0.1 s")
    return every


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
        steps=_steps(table, seconds),
        bursts=_bursts(table, seconds),
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


def _steps(table: Table, seconds: float) -> tuple[tuple[float, float], ...]:
    steps = tuple((item[0], item[1]) for item in _numbers(table, "steps", 2))
    starts = [start for start, _ in steps]
    if starts != sorted(set(starts)):
        raise table.refuse("steps", f"must begin one after another, not at {starts}")
    if starts and starts[-1] >= seconds:
        raise table.refuse("steps", f"{starts[-1]:g} s is after the run's end at {seconds:g} s")
    return steps


def _bursts(table: Table, seconds: float) -> tuple[tuple[float, float, float], ...]:
    bursts = tuple((item[0], item[1], item[2]) for item in _numbers(table, "bursts", 3))
    for start, end, _ in bursts:
        if end <= start:
            raise table.refuse("bursts", f"{end:g} s is not after {start:g} s")
        if start >= seconds:
            raise table.refuse("bursts", f"{start:g} s is after the run's end at {seconds:g} s")
    return bursts


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
        embedding=_installed(table, "embedding", EMBEDDINGS),
        index=_installed(table, "index", INDEXES),
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


def _installed(table: Table, key: str, needed: Mapping[str, Sequence[str]]) -> str:
    """A choice whose packages are there; the first is the default."""
    chosen = table.choice(key, next(iter(needed)), needed)
    if why := missing(*needed[chosen]):
        raise table.refuse(key, f"{chosen!r} is {why}")
    return chosen


def _engine(table: Table, default: EngineChoice) -> EngineChoice:
    table.known(item.name for item in fields(EngineChoice))
    kind = table.choice("kind", default.kind, ("simulated", "vllm"))
    url = table.text("url", default.url)
    if (kind == "vllm") != url.startswith(("http://", "https://")):
        raise table.refuse(
            "url", 'an engine of kind vllm needs url = "http://host:port", and only such an engine takes one'
        )
    model = table.text("model", default.model) if kind == "vllm" else table.choice("model", default.model, MODELS)
    return EngineChoice(
        kind=kind,
        url=url,
        gpu=table.choice("gpu", default.gpu, GPUS),
        model=model,
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
    if found.cause and found.cause not in CAUSES:
        raise table.refuse(
            "cause", f"{found.cause!r} is unknown{suggest(found.cause, CAUSES)}; one of {', '.join(CAUSES)}"
        )
    if found.stage and found.stage not in STAGES and not found.stage.startswith("gap: "):
        raise table.refuse(
            "stage", f'{found.stage!r} is unknown{suggest(found.stage, STAGES)}; a stage, or "gap: a → b"'
        )
    return found
