"""What one run shares: clock, hosts, engines, queues, sessions.
All randomness comes from generators seeded by (seed, name), never from a global one."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from instrumented_stack.batching import StaticBatch
from instrumented_stack.catalogue import POOLS, STAGES, Stage, Task
from instrumented_stack.engine import EngineOptions
from instrumented_stack.engine_sim import Engine
from instrumented_stack.engine_vllm import VllmEngine
from instrumented_stack.faults import FaultBook
from instrumented_stack.hardening import AnswerCache, Breaker, Sessions
from instrumented_stack.hardware import GPUS, MODELS, Model
from instrumented_stack.scenario import Scenario, runs_model
from instrumented_stack.telemetry import Link, Place, Tracing
from instrumented_stack.wire import Direct, Wire

SLOWING = frozenset(
    {"prompt_bloat", "oversized_model", "gpu_contention", "pcie_saturation", "retry", "redundant_step", "batch_stall"}
)
ZONES = ("a", "b", "c")


@dataclass(slots=True)
class Request:
    """One request on its way: dimensions, task, lengths, and its own random numbers."""

    number: int
    rng: random.Random
    dims: dict[str, str]
    task: Task
    text: str
    link: Link
    input_scale: float = 1.0
    output_scale: float = 1.0
    output_tokens: int = 0
    history_tokens: int = 0
    state: dict[str, str] = field(default_factory=dict)


class Backlog:
    """The unfinished work of other tenants in front of one server: an M/M/1 virtual waiting time, looked at only when somebody comes.
    Mean wait `mean_s` at 85 % utilisation; neighbours in time see nearly the same queue (Lindley's recursion between looks)."""

    RHO = 0.85

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left_s = 0.0
        self._at_s = -math.inf

    def wait_s(self, now_s: float, mean_s: float) -> float:
        """Seconds of work found at `now_s`."""
        job_s = mean_s * (1 - self.RHO) / self.RHO
        gap = now_s - self._at_s
        if gap > 400 * job_s:
            empty = self._rng.random() > self.RHO
            self._left_s = 0.0 if empty else self._rng.expovariate((1 - self.RHO) / job_s)
        else:
            clock = 0.0
            while True:
                step = self._rng.expovariate(self.RHO / job_s)
                if clock + step > gap:
                    self._left_s = max(0.0, self._left_s - (gap - clock))
                    break
                clock += step
                self._left_s = max(0.0, self._left_s - step) + self._rng.expovariate(1 / job_s)
        self._at_s = now_s
        return self._left_s


class World:
    """The state of one run, live or virtual."""

    def __init__(self, scenario: Scenario, tracing: Tracing, peak_rps: float, wire: Wire | None = None) -> None:
        self.wire: Wire = wire or Direct()
        self.zero_s = 0.0
        self.scenario = scenario
        self.switches = scenario.switches
        self.tracing = tracing
        self.faults = FaultBook(scenario.faults)
        self.hosts = {pool: size(scenario, pool, peak_rps) for pool in (*POOLS, "orchestrator", "gateway")}
        self.engines: dict[tuple[str, str], Engine | VllmEngine] = {}
        self.batches: dict[tuple[str, str], StaticBatch] = {}
        self.cold: dict[tuple[str, str], tuple[int, float]] = {}
        self.in_flight: dict[str, int] = {}
        self.cpu_busy_s: dict[str, float] = {}
        self.sessions = Sessions(self.switches.lock_timeout_s if self.switches.hardening.state_lock else 30.0)
        self.answers = AnswerCache()
        self._breakers: dict[str, Breaker] = {}
        self._backlogs: dict[tuple[str, str, str], Backlog] = {}
        self._speed: dict[str, float] = {}
        self._places: dict[tuple[str, str, str], Place] = {}
        self._started_s = -float(self.rng("uptime").randint(3_000, 400_000))

    def rng(self, *name: str) -> random.Random:
        """A generator of its own for everything that has a name."""
        return random.Random("/".join((str(self.scenario.seed), *name)))

    def now_s(self) -> float:
        """Seconds since the run began."""
        return asyncio.get_running_loop().time() - self.zero_s

    async def burn_cpu(self, seconds: float) -> None:
        """Keep a CPU busy; on virtual time that is only a sleep."""
        await asyncio.sleep(seconds)

    async def serialise(self, size_bytes: int, seconds: float) -> None:
        """Encode and decode a payload; on virtual time that is only a sleep."""
        await asyncio.sleep(seconds)

    async def use_tool(self, tool: str, text: str, rows: int, size_bytes: int) -> tuple[float, int, int]:
        """(seconds already spent, rows, answer bytes). On virtual time nothing runs and the catalogue's figures stand."""
        return 0.0, rows, size_bytes

    def choose_tool(self, text: str) -> str:
        """The tool that the selector picks; empty on virtual time, where nobody reads texts."""
        return ""

    @staticmethod
    async def keep(task: asyncio.Task[int]) -> None:
        """Let a writer that nobody waits for end by itself."""
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def detached(self, link: Link) -> Link:
        """What the next service makes of a call that carries no trace context: a trace of its own."""
        return self.tracing.fresh(link)

    def breaker(self, tool: str) -> Breaker:
        return self._breakers.setdefault(tool, Breaker())

    def uptime_s(self, host: str) -> float:
        return self.now_s() - self._started_s + 61.0 * (hash_of(host) % 97)

    def host_speed(self, host: str) -> float:
        """How much slower (or faster) this host is than the catalogue says; hosts really differ by a few per cent. One that differs
        by more than twice the spread would be a faulty host, and the truth does not say so: there the draw ends."""
        if host not in self._speed:
            drawn = self.rng("host", host).gauss(0.0, 1.0)
            self._speed[host] = math.exp(self.switches.host_spread * max(-2.0, min(2.0, drawn)))
        return self._speed[host]

    def place(self, service: str, host: str, version: str) -> Place:
        key = (service, host, version)
        if key not in self._places:
            self._places[key] = Place(service, host, version, f"zone-{ZONES[hash_of(host) % 3]}")
        return self._places[key]

    def pick_host(self, pool: str, rng: random.Random) -> str:
        """Of two random hosts the one with less in flight."""
        hosts = self.hosts[pool]
        first, second = rng.choice(hosts), rng.choice(hosts)
        return first if self.in_flight.get(first, 0) <= self.in_flight.get(second, 0) else second

    @staticmethod
    def stages_of(pool: str) -> tuple[str, ...]:
        """Names of the stages that run on a pool."""
        return tuple(stage.name for stage in STAGES.values() if stage.pool == pool)

    def engine(self, host: str, stage: Stage) -> Engine | VllmEngine:
        """The engine of a stage on a host; on a host of another pool it is that pool's model."""
        key = (host, stage.name)
        if key not in self.engines:
            choice = self.switches.engines[host.rsplit("-", 1)[0]]
            options = EngineOptions(
                GPUS[choice.gpu],
                MODELS.get(choice.model) or Model(choice.model, 1e9, 2.0, 100_000, 0.0),
                choice.max_num_seqs,
                choice.block_tokens,
                choice.prefix_caching,
                choice.max_model_len,
                choice.kv_quota,
            )
            vllm = choice.kind == "vllm"
            self.engines[key] = VllmEngine(options, choice.url, choice.model) if vllm else Engine(options)
        return self.engines[key]

    def batch(self, host: str, stage: Stage) -> StaticBatch:
        key = (host, stage.name)
        if key not in self.batches:
            self.batches[key] = StaticBatch(self.engine(host, stage))
        return self.batches[key]

    def backlog(self, what: str, stage: str, host: str) -> Backlog:
        key = (what, stage, host)
        if key not in self._backlogs:
            self._backlogs[key] = Backlog(self.rng("backlog", *key))
        return self._backlogs[key]


def hash_of(text: str) -> int:
    """A small stable number from text (Python's own hash changes from run to run)."""
    value = 2_166_136_261
    for byte in text.encode():
        value = (value ^ byte) * 16_777_619 & 0xFFFFFFFF
    return value


def size(scenario: Scenario, pool: str, peak_rps: float) -> tuple[str, ...]:
    """Host names of a pool: as many as the scenario says, else enough that a healthy stack never queues at its peak."""
    given = scenario.switches.hosts.get(pool, 0)
    if not given:
        per_rps = {"edge": 0.2, "middle": 0.35, "core": 2.0, "tools": 0.1, "orchestrator": 0.02, "gateway": 0.01}[pool]
        stages = [STAGES[fault.stage] for fault in scenario.faults if fault.stage != "*" and fault.kind in SLOWING]
        worst = max((item.strength for item in scenario.faults if item.kind in SLOWING), default=1.0)
        if pool == "edge" and (
            scenario.switches.tool_select == "prompt" or any(item.name == "tool_select" for item in stages)
        ):
            per_rps = 3.0
        oversized = pool == "core" and any(fault.kind == "oversized_model" for fault in scenario.faults)
        hit = any(item.pool == pool for item in stages) or oversized
        given = max(2, math.ceil(per_rps * peak_rps * (1 + min(worst, 4.0) if hit else 1)))
    return tuple(f"{pool}-{number + 1}" for number in range(min(given, 128)))


def model_stages(scenario: Scenario, pool: str) -> Sequence[Stage]:
    """The stages of a pool that ask a model under this scenario's switches."""
    return [stage for stage in STAGES.values() if stage.pool == pool and runs_model(stage.name, scenario.switches)]
