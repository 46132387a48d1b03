"""What the active faults do to one stage run: each kind is one small function on the run's conditions. Only facts reach the span."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from instrumented_stack.catalogue import Stage, Tokens
from instrumented_stack.scenario import Fault
from instrumented_stack.telemetry import Span
from instrumented_stack.world import Request, World, hash_of


@dataclass(slots=True)
class Run:
    """One execution of one stage: where it runs, and the conditions that faults may change before the work starts."""

    world: World
    stage: Stage
    request: Request
    host: str
    span: Span
    tool: str = ""
    pool: str = ""
    effort: float = 1.0
    extra_tokens: int = 0
    dependency_s: float = 0.0
    closing_s: float = 0.0
    hang: bool = False
    fail_share: float = 0.0
    preemptions: float = 0.0
    hold_s: float = 0.0
    held_share: float = 0.0
    batch_window_s: float = 0.0
    payload_bytes: int = 0
    overlong: bool = False
    over_quota: bool = False
    degraded: bool = False
    broken_text: bool = False
    conflict: bool = False
    fallback: int = 0
    facts: dict[str, float] = field(default_factory=dict)

    def lognormal(self, sigma: float) -> float:
        return math.exp(self.request.rng.gauss(0.0, sigma))

    def chance(self, share: float) -> bool:
        return self.request.rng.random() < min(0.95, share)

    def count(self, tokens: Tokens, scale: float) -> int:
        """A log-normal whole number of at least 1."""
        return max(1, round(tokens.median * scale * self.lognormal(tokens.sigma)))

    def tail(self, sigma: float) -> float:
        """Unexplained healthy spread: log-normal, and one run in a hundred much slower."""
        rng, spread = self.request.rng, self.lognormal(sigma)
        return spread * (1 + min(6.0, rng.paretovariate(2.0) - 1)) if rng.random() < 0.01 else spread

    def add(self, fact: str, amount: float) -> None:
        self.facts[fact] = self.facts.get(fact, 0.0) + amount


async def _queueing(run: Run, fault: Fault) -> None:
    wait = run.world.backlog("queue", run.stage.name, run.host).wait_s(run.world.now_s(), 0.9 * fault.strength)
    run.add("queue_ms", wait * 1e3)
    await asyncio.sleep(wait)


async def _lock_wait(run: Run, fault: Fault) -> None:
    mean = 0.6 * fault.strength
    wait = run.world.backlog("lock", run.stage.name, "").wait_s(run.world.now_s(), mean)
    run.add("lock_wait_ms", wait * 1e3)
    run.add("lock_holders", math.ceil(wait / (mean * 0.18)) if wait > 0 else 0)
    await asyncio.sleep(wait)


async def _storage_wait(run: Run, fault: Fault) -> None:
    wait = run.world.backlog("disk", run.stage.name, run.host).wait_s(run.world.now_s(), 0.35 * fault.strength)
    await asyncio.sleep(wait + 0.08 * fault.strength * run.lognormal(0.3))


async def _cold_start(run: Run, fault: Fault) -> None:
    """The process is replaced every 45 s; the first request loads the model, and whoever comes meanwhile waits for it too."""
    now, key = run.world.now_s(), (run.host, run.stage.name)
    shift = hash_of(run.host) % 45
    epoch = math.floor((now + shift) / 45.0)
    age = now + shift - 45.0 * epoch
    known, ready = run.world.cold.get(key, (-1, 0.0))
    if known != epoch:
        ready = now + 5.0 * fault.strength * run.lognormal(0.1)
        run.world.cold[key] = (epoch, ready)
    run.facts["uptime_s"] = round(min(age, now - fault.start_s), 3)
    if ready > now:
        run.span.set("stagescope.cold_start", True)
        if run.world.switches.hardening.health_check:
            run.span.event("health_check.passed", {"host.name": run.host})
        await asyncio.sleep(ready - now)


async def _context_init(run: Run, fault: Fault) -> None:
    wait = 0.16 * fault.strength * run.lognormal(0.12)
    run.add("context_init_ms", wait * 1e3)
    await asyncio.sleep(wait)


async def _cpu_blocking(run: Run, fault: Fault) -> None:
    busy = 0.3 * fault.strength * run.lognormal(0.2)
    run.add("cpu_ms", busy * 1e3)
    run.world.cpu_busy_s[run.host] = run.world.cpu_busy_s.get(run.host, 0.0) + busy
    await run.world.burn_cpu(busy)


async def _fallback_path(run: Run, fault: Fault) -> None:
    if not run.chance(0.75):
        return
    run.fallback = 1
    resident = run.world.switches.hardening.resident_fallback
    if resident:
        run.span.set("stagescope.fallback.resident", True)
    run.effort *= 1.0 if resident else 1.47
    await asyncio.sleep(0.012 if resident else 0.843 * fault.strength * run.lognormal(0.15))


async def _retry(run: Run, fault: Fault) -> None:
    run.fail_share = 1 - 1 / (1 + 1.2 * fault.strength)


async def _payload(run: Run, fault: Fault) -> None:
    run.payload_bytes += int(4.7e6 * fault.strength * run.lognormal(0.12))


async def _slow_dependency(run: Run, fault: Fault) -> None:
    run.dependency_s += 1.8 * fault.strength * run.lognormal(0.35)


async def _prompt_bloat(run: Run, fault: Fault) -> None:
    run.extra_tokens += int(3_400 * fault.strength)


async def _oversized_model(run: Run, fault: Fault) -> None:
    run.pool = "core"


async def _batch_stall(run: Run, fault: Fault) -> None:
    run.batch_window_s = max(run.batch_window_s, 0.5 * fault.strength)


async def _kv_cache_pressure(run: Run, fault: Fault) -> None:
    run.preemptions += 1.0 + fault.strength
    run.hold_s = max(run.hold_s, 0.15 * fault.strength)
    run.held_share = 0.93 + 0.06 * run.request.rng.random()


def _slower(share: float) -> Callable[[Run, Fault], Awaitable[None]]:
    async def slow(run: Run, fault: Fault) -> None:
        run.effort *= 1.0 + share * fault.strength

    return slow


async def _kv_overflow(run: Run, fault: Fault) -> None:
    run.held_share = 0.93 + 0.06 * run.request.rng.random()
    run.overlong = run.overlong or run.chance(0.25 * fault.strength)


async def _tool_timeout(run: Run, fault: Fault) -> None:
    run.hang = run.hang or run.chance(0.3 * fault.strength)


async def _serialisation_crash(run: Run, fault: Fault) -> None:
    run.broken_text = run.broken_text or run.chance(0.25 * fault.strength)


async def _state_deadlock(run: Run, fault: Fault) -> None:
    run.conflict = run.conflict or run.chance(0.25 * fault.strength)


async def _resource_exhausted(run: Run, fault: Fault) -> None:
    run.over_quota = run.over_quota or run.chance(0.25 * fault.strength)


async def _degraded_mode(run: Run, fault: Fault) -> None:
    run.degraded = run.degraded or run.chance(0.3 * fault.strength)


async def _elsewhere(run: Run, fault: Fault) -> None:
    """Acts on the wire (network_hop) or in the orchestrator (redundant_step), not inside the stage."""


CONDITIONS: Mapping[str, Callable[[Run, Fault], Awaitable[None]]] = {
    "cold_start": _cold_start,
    "queueing": _queueing,
    "lock_wait": _lock_wait,
    "storage_wait": _storage_wait,
    "context_init": _context_init,
    "cpu_blocking": _cpu_blocking,
    "fallback_path": _fallback_path,
    "retry": _retry,
    "payload": _payload,
    "slow_dependency": _slow_dependency,
    "prompt_bloat": _prompt_bloat,
    "oversized_model": _oversized_model,
    "batch_stall": _batch_stall,
    "kv_cache_pressure": _kv_cache_pressure,
    "gpu_contention": _slower(0.9),
    "pcie_saturation": _slower(0.9),
    "dimension_specific": _slower(0.6),
    "regression": _slower(0.5),
    "unknown": _slower(0.8),
    "kv_overflow": _kv_overflow,
    "tool_timeout": _tool_timeout,
    "serialisation_crash": _serialisation_crash,
    "state_deadlock": _state_deadlock,
    "resource_exhausted": _resource_exhausted,
    "degraded_mode": _degraded_mode,
    "network_hop": _elsewhere,
    "redundant_step": _elsewhere,
}
