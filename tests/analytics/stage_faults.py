"""Faults for `stage_world.World`, one small function a kind: each changes times and leaves the evidence a real one would leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from tests.analytics.stage_world import CORE, START, World

Mask = pd.Series


def apply(
    world: World, kind: str, stage: str, span: tuple[float, float] = (0.0, 1.0), strength: float = 1.0, **where: str
) -> None:
    """Put one fault into a world: `span` are shares of the window, `where` are columns and their value."""
    mask = world.of(stage) & world.between(*span)
    for column, value in where.items():
        mask &= world.runs[column] == value
    FAULTS[kind](world, mask, strength)


def samples(world: World, mask: Mask, column: str, calm: tuple[float, float], storm: tuple[float, float]) -> None:
    """Samples every 10 s for the stage's hosts; stormy while (and where) the fault acts."""
    runs, rng = world.runs, world.rng
    stage = runs.loc[mask, "stage"].iloc[0]
    own = runs[runs["stage"] == stage]
    ticks = np.arange(0, world.minutes * 60, 10.0) + START.timestamp()
    hit = runs.loc[mask]
    frames = []
    for host in sorted(own["host"].unique()):
        bad = hit.loc[hit["host"] == host, "ts"]
        on = (ticks >= bad.min()) & (ticks <= bad.max()) if len(bad) else np.zeros(len(ticks), bool)
        frames.append(
            pd.DataFrame(
                {
                    "ts": ticks,
                    "host": host,
                    column: np.where(on, rng.uniform(*storm, len(ticks)), rng.uniform(*calm, len(ticks))),
                }
            )
        )
    table = pd.concat(frames, ignore_index=True)
    if column in ("sm", "pcie"):
        number = float(sorted(runs["stage"].unique()).index(stage))
        runs.loc[runs["stage"] == stage, "ev_gpu"] = number
        table = table.assign(
            gpu=str(int(number)), **{name: np.nan for name in ("sm", "dram", "gpu_mem", "pcie") if name != column}
        )
        world.gpu = pd.concat([world.gpu, table], ignore_index=True)
        return
    others = {name: np.nan for name in ("cpu", "cpu_load", "disk_queue", "net_rtt") if name != column}
    world.host = pd.concat([world.host, table.assign(**others)], ignore_index=True)


def _times(
    column: str, calm: tuple[float, float], storm: tuple[float, float], share: float
) -> Callable[[World, Mask, float], None]:
    def act(world: World, mask: Mask, strength: float) -> None:
        world.slow(mask, 1 + share * strength)
        samples(world, mask, column, calm, storm)

    return act


def _slower(share: float) -> Callable[[World, Mask, float], None]:
    return lambda world, mask, strength: world.slow(mask, 1 + share * strength)


def _measured(fact: str, mean_ms: float) -> Callable[[World, Mask, float], None]:
    return lambda world, mask, strength: world.measured(mask, fact, mean_ms * strength)


def _lock(world: World, mask: Mask, strength: float) -> None:
    world.measured(mask, "ev_lock_wait_ms", 600 * strength)
    world.runs.loc[mask, "ev_lock_holders"] = np.ceil(world.runs.loc[mask, "ev_lock_wait_ms"] / 100)


def _storage(world: World, mask: Mask, strength: float) -> None:
    n = int(mask.sum())
    world.runs.loc[mask, "extra_ms"] += world.rng.exponential(350 * strength, n) + 80 * strength
    samples(world, mask, "disk_queue", (0.1, 0.8), (14, 40))


def _cold(world: World, mask: Mask, strength: float) -> None:
    runs = world.runs
    age = (runs.loc[mask, "ts"] + runs.loc[mask, "host"].str[-1].astype(int) * 13) % 45
    runs.loc[mask, "ev_uptime_s"] = age
    wait = np.maximum(5_000 * strength - age * 1e3, 0)
    cold = wait.index[wait > 0]
    runs.loc[cold, "extra_ms"] += wait[cold]
    runs.loc[cold, "ev_cold_start"] = 1.0


def _cpu(world: World, mask: Mask, strength: float) -> None:
    spent = 300 * strength * np.exp(world.rng.normal(0, 0.2, int(mask.sum())))
    world.runs.loc[mask, "extra_ms"] += spent
    world.runs.loc[mask, "ev_cpu_ms"] = spent


def _fallback(world: World, mask: Mask, strength: float) -> None:
    hit = mask & (world.rng.random(len(mask)) < 0.75)
    world.slow(hit, 1.47)
    world.runs.loc[hit, "extra_ms"] += 843 * strength
    world.runs.loc[hit, "ev_fallback"] = 1.0
    world.runs.loc[hit & (world.runs["tier"] != "edge"), "model"] = "Tiny-1.1B"


def _retry(world: World, mask: Mask, strength: float) -> None:
    share = 1 - 1 / (1 + 1.2 * strength)
    world.runs.loc[mask, "retries"] = np.minimum(world.rng.geometric(1 - share, int(mask.sum())) - 1, 3).astype(float)


def _payload(world: World, mask: Mask, strength: float) -> None:
    size = 4.7e6 * strength * np.exp(world.rng.normal(0, 0.12, int(mask.sum())))
    world.runs.loc[mask, "payload_bytes"] = size
    world.runs.loc[mask, "ev_serialise_ms"] = size / 1e6 * 90
    world.runs.loc[mask, "extra_ms"] += size / 1e6 * 90


def _dependency(world: World, mask: Mask, strength: float) -> None:
    world.runs.loc[mask, "extra_ms"] += 1_800 * strength * np.exp(world.rng.normal(0, 0.35, int(mask.sum())))


def _bloat(world: World, mask: Mask, strength: float) -> None:
    kind = next(item for item in world.stages if item.name == world.runs.loc[mask, "stage"].iloc[0])
    world.runs.loc[world.of(kind.name), "ev_repeated_tokens"] = 120.0
    world.runs.loc[mask, "input_tokens"] += 3_400 * strength
    world.runs.loc[mask, "service_ms"] += 3_400 * strength * kind.prompt_ms
    world.runs.loc[mask, "ev_repeated_tokens"] += 3_400 * strength


def _oversized(world: World, mask: Mask, strength: float) -> None:
    runs = world.runs
    work = (
        CORE["base"]
        + CORE["prompt_ms"] * runs.loc[mask, "input_tokens"]
        + CORE["output_ms"] * runs.loc[mask, "output_tokens"]
    )
    runs.loc[mask, "service_ms"] = work * np.exp(world.rng.normal(0, 0.12, int(mask.sum())))
    runs.loc[mask, ["tier", "model", "service"]] = ["core", CORE["model"], "core"]


def _kv(world: World, mask: Mask, strength: float) -> None:
    runs, n = world.runs, int(mask.sum())
    count = 1 + world.rng.poisson(strength, n)
    runs.loc[mask, "extra_ms"] += count * 150 * strength + 0.3 * count * runs.loc[mask, "service_ms"]
    runs.loc[world.of(runs.loc[mask, "stage"].iloc[0]), "ev_kv_usage"] = 0.1
    runs.loc[mask, "ev_kv_usage"] = world.rng.uniform(0.93, 0.99, n)
    runs.loc[mask, "ev_preemptions"] = count


def _network(world: World, mask: Mask, strength: float) -> None:
    world.runs.loc[mask, "extra_ms"] += 90 * strength * np.exp(world.rng.normal(0, 0.2, int(mask.sum())))


def _redundant(world: World, mask: Mask, strength: float) -> None:
    world.runs.loc[mask, "ev_outcome_changed"] = (world.rng.random(int(mask.sum())) < 0.037).astype(float)


def _batch(world: World, mask: Mask, strength: float) -> None:
    spent = world.rng.uniform(0, 500 * strength, int(mask.sum()))
    world.runs.loc[mask, "ev_batch_wait_ms"] = spent
    world.runs.loc[mask, "extra_ms"] += spent + 0.2 * world.runs.loc[mask, "service_ms"]


FAULTS: Mapping[str, Callable[[World, Mask, float], None]] = {
    "queueing": _measured("ev_queue_ms", 900),
    "lock_wait": _lock,
    "storage_wait": _storage,
    "cold_start": _cold,
    "context_init": _measured("ev_context_init_ms", 160),
    "cpu_blocking": _cpu,
    "fallback_path": _fallback,
    "retry": _retry,
    "payload": _payload,
    "slow_dependency": _dependency,
    "prompt_bloat": _bloat,
    "oversized_model": _oversized,
    "batch_stall": _batch,
    "kv_cache_pressure": _kv,
    "gpu_contention": _times("sm", (0.2, 0.6), (0.94, 0.99), 0.9),
    "pcie_saturation": _times("pcie", (0.01, 0.1), (0.88, 0.95), 0.9),
    "dimension_specific": _slower(0.6),
    "regression": _slower(0.5),
    "unknown": _slower(0.8),
    "network_hop": _network,
    "redundant_step": _redundant,
}
