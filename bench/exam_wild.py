"""Made-up worlds for the exam: scenario files with random mixes, numbers, dimension names, decoys and none to three faults at a time.

Must stay true: the same number always makes the same file; every fourth world is healthy and only looks bad.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from instrumented_stack.catalogue import POOLS, STAGES, TASKS

SECONDS = 450
MIN_SHARE = 0.35
MODEL = tuple(
    name for name, stage in STAGES.items() if stage.uses_model and name not in ("tool_select", "self_reflection")
)
SMALL = ("intent_parse", "tone", "format_check", "fact_check")
WRITING = ("summarise", "outline", "aggregate", "llm_generate")
ENGINES: Mapping[str, Sequence[tuple[str, str]]] = {
    "edge": (("Tesla T4", "TinyLlama-1.1B"), ("NVIDIA A10", "TinyLlama-1.1B"), ("Tesla T4", "SmolLM2-135M")),
    "middle": (("NVIDIA A10", "Phi-3-mini-3.8B"), ("NVIDIA H100", "Llama-3-8B"), ("NVIDIA H100", "Phi-3-mini-3.8B")),
    "core": (("2x NVIDIA A100-SXM4-80GB", "Llama-3-70B-AWQ"), ("NVIDIA H100", "Llama-3-70B-AWQ")),
}


class Kind(NamedTuple):
    """A fault: where it may act, how strong, and how long (`always`: from the first second; `part`: some of the run; `any`)."""

    stages: Sequence[str]
    low: float = 0.8
    high: float = 1.5
    lasts: str = "any"


KINDS: Mapping[str, Kind] = {
    "prompt_bloat": Kind(("tool_select", *MODEL), 0.7),
    "oversized_model": Kind(SMALL, 1.0, 1.0),
    "redundant_step": Kind(("aggregate", "outline", "summarise"), 1.0, 1.1),
    "retry": Kind((*MODEL, "data_fetch"), 0.6, 1.2),
    "queueing": Kind((*MODEL, "data_fetch")),
    "batch_stall": Kind(("aggregate", "format_render", "format_check", "outline", "intent_parse")),
    "cpu_blocking": Kind(MODEL),
    "payload": Kind(("data_fetch", "aggregate", "summarise"), 0.6),
    "fallback_path": Kind(MODEL, lasts="part"),
    "cold_start": Kind(MODEL),
    "kv_cache_pressure": Kind(WRITING, 1.0, lasts="part"),
    "gpu_contention": Kind(MODEL, 0.9),
    "pcie_saturation": Kind(MODEL, 0.9),
    "storage_wait": Kind(("data_fetch", *MODEL)),
    "network_hop": Kind(("data_fetch", "llm_generate"), 0.9),
    "slow_dependency": Kind(("data_fetch",), 0.7, lasts="part"),
    "lock_wait": Kind(("data_fetch", *MODEL), 0.9),
    "context_init": Kind(MODEL),
    "dimension_specific": Kind(MODEL, 1.0, 1.8),
    "regression": Kind(MODEL, 1.0, 1.8, "part"),
    "unknown": Kind(MODEL, 0.9, 1.8, "part"),
}


@dataclass
class Draft:
    """A world in the making: dimension values with their shares, tasks with theirs, and the faults chosen as (kind, stage)."""

    rng: random.Random
    faults: Sequence[tuple[str, str]]
    dims: dict[str, dict[str, float]] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)


def write_worlds(folder: Path, numbers: Iterable[int]) -> list[Path]:
    """One scenario file a number, `wild-0007.toml`; an old one of the same number is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in numbers:
        path = folder / f"wild-{number:04d}.toml"
        path.write_text(world(number))
        paths.append(path)
    return paths


def world(number: int) -> str:
    """The text of one scenario file."""
    rng = random.Random(f"world/{number}")
    draft = Draft(rng, _choose(rng, 0 if number % 4 == 0 else rng.choice((1, 1, 2, 2, 3))))
    draft.dims = {
        "regions": _shares(rng, _words(rng, rng.randint(2, 4))),
        "devices": _shares(rng, _words(rng, rng.randint(2, 4))),
        "tiers": _shares(rng, _words(rng, rng.randint(2, 3))),
    }
    draft.tasks = _tasks(rng, [stage for _, stage in draft.faults])
    lines = [f'title = "Made-up world {number}"', f"seconds = {SECONDS}", f"seed = {1_000 + number}"]
    lines += [f'sample_every = "{rng.choice((10, 15, 30))}s"', *_traffic(draft), *_stack(draft), *_rollout(draft)]
    for kind, stage in draft.faults:
        lines += _fault(draft, kind, stage)
    return "\n".join(lines) + "\n"


def _choose(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Kinds at random, each on a stage of its own; the ways to two pools are two stages, too."""
    found: dict[str, str] = {}
    kinds = rng.sample(sorted(KINDS), len(KINDS))
    for kind in kinds:
        free = [stage for stage in KINDS[kind].stages if stage not in found]
        if len(found) < count and free and not (kind == "regression" and "dimension_specific" in found.values()):
            found[rng.choice(free)] = kind
    return [(kind, stage) for stage, kind in found.items()]


def _words(rng: random.Random, count: int) -> list[str]:
    return [
        "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 4)))
        for _ in range(count)
    ]


def _shares(rng: random.Random, names: Sequence[str]) -> dict[str, float]:
    return {name: round(rng.uniform(0.3, 1.0), 2) for name in names}


def _tasks(rng: random.Random, stages: Sequence[str]) -> dict[str, float]:
    """A mix in which every faulty stage takes part in MIN_SHARE of the requests."""
    usual = [name for name in TASKS if name != "reflection"]
    while True:
        mix = {name: round(rng.uniform(0.2, 1.0), 2) for name in rng.sample(usual, rng.randint(3, 6))}
        total = sum(mix.values())
        if all(sum(share for name, share in mix.items() if _has(name, stage)) >= MIN_SHARE * total for stage in stages):
            return mix


def _has(task: str, stage: str) -> bool:
    return stage in ("intent_parse", "tool_select", "data_fetch", *TASKS[task].before, *TASKS[task].after)


def _traffic(draft: Draft) -> list[str]:
    rng = draft.rng
    lines = ["", "[traffic]", f"rps = {rng.uniform(2.0, 4.5):.2f}", f"tasks = {_table(draft.tasks)}"]
    lines += [f"{name} = {_table(shares)}" for name, shares in draft.dims.items()]
    lines += [f"users = {rng.randint(50, 900)}", f"input_scale = {rng.uniform(0.7, 1.6):.2f}"]
    lines += [f"output_scale = {rng.choice((1.0, rng.uniform(0.6, 1.5), rng.uniform(2.0, 4.0))):.2f}"]
    if rng.random() < 0.25:
        lines.append(f"poll_s = {rng.uniform(1.0, 5.0):.1f}")
    if rng.random() < 0.4:
        tool = rng.choice([tool for task in draft.tasks for tool in TASKS[task].tools])
        lines.append(f"slow_tools = {{ {tool} = {rng.uniform(2.0, 8.0):.1f} }}")
    if rng.random() < 0.3:
        lines.append('shape = "day"')
    return lines


def _stack(draft: Draft) -> list[str]:
    rng = draft.rng
    lines = ["", "[stack]", f"host_spread = {rng.uniform(0.02, 0.07):.3f}"]
    if ("prompt_bloat", "tool_select") in draft.faults and rng.random() < 0.5:
        lines.append('tool_select = "prompt"')
    for pool, choices in ENGINES.items():
        if rng.random() < 0.5:
            gpu, model = rng.choice(choices)
            lines += [f"[stack.engine.{pool}]", f'gpu = "{gpu}"', f'model = "{model}"']
            lines += ["max_num_seqs = 8", "prefix_caching = true"] if pool == "core" else []
    return lines


def _rollout(draft: Draft) -> list[str]:
    """A harmless new version, unless a fault brings one."""
    rng = draft.rng
    if rng.random() > 0.4 or any(kind == "regression" for kind, _ in draft.faults):
        return []
    share, start = rng.uniform(0.3, 1.0), rng.randint(20, 60)
    return ["", "[[rollout]]", f'version = "2.{rng.randint(0, 9)}.0"', f'start = "{start}%"', f"share = {share:.2f}"]


def _fault(draft: Draft, kind: str, stage: str) -> list[str]:
    rng, made = draft.rng, KINDS[kind]
    part = made.lasts == "part" or (made.lasts == "any" and rng.random() < 0.5)
    first = rng.randint(10, 45) if part else 0
    last = rng.choice((100, rng.randint(first + 35, 100))) if part and kind != "regression" else 100
    lines = ["", "[[fault]]", f'kind = "{kind}"', f'stage = "{stage}"', f'start = "{first}%"', f'end = "{last}%"']
    lines.append(f"strength = {rng.uniform(made.low, made.high):.2f}")
    if kind == "dimension_specific":
        name, key = rng.choice((("regions", "region"), ("devices", "device"), ("tiers", "user_tier")))
        shares = draft.dims[name]
        lines.append(f'where = {{ {key} = "{max(shares, key=lambda one: shares[one])}" }}')
    if kind == "slow_dependency":
        weights = {tool: 0.0 for task in draft.tasks for tool in TASKS[task].tools}
        for task, share in draft.tasks.items():
            for tool in TASKS[task].tools:
                weights[tool] += share
        lines.append(f'where = {{ tool = "{max(sorted(weights), key=lambda one: weights[one])}" }}')
    named = f"gap: orchestrator → {POOLS[STAGES[stage].pool]}" if kind == "network_hop" else stage
    return [*lines, "", "[[expect]]", f'stage = "{named}"', f'cause = "{kind}"']


def _table(shares: Mapping[str, float]) -> str:
    return "{ " + ", ".join(f"{name} = {share}" for name, share in shares.items()) + " }"
