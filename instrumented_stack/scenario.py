"""A scenario: traffic, switches, faults, and what must be found. Frozen; `read.py` makes one from a TOML file and refuses what means nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from instrumented_stack.catalogue import (
    DEFAULT_DEVICES,
    DEFAULT_REGIONS,
    DEFAULT_TASKS,
    DEFAULT_TIERS,
    DEFAULT_VERSIONS,
    STAGES,
)

CAUSES = (
    "prompt_bloat oversized_model redundant_step retry queueing batch_stall cpu_blocking payload fallback_path cold_start "
    "kv_cache_pressure gpu_contention pcie_saturation storage_wait network_hop slow_dependency lock_wait context_init "
    "dimension_specific regression unknown"
).split()
SCENES = "kv_overflow tool_timeout serialisation_crash state_deadlock resource_exhausted degraded_mode".split()
KINDS = (*CAUSES, *SCENES)
WHERE_KEYS = "region device user_tier version host tool task user session tier service model".split()
GPU_KINDS = frozenset(
    {"kv_cache_pressure", "gpu_contention", "pcie_saturation", "batch_stall", "context_init", "kv_overflow"}
)
MODEL_KINDS = GPU_KINDS | {"prompt_bloat", "oversized_model"}
TOOL_KINDS = frozenset({"tool_timeout"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected trouble: times in seconds from the start, half-open; `strength` 1 is the figure that the field reports."""

    kind: str
    stage: str
    start_s: float
    end_s: float
    strength: float = 1.0
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expect:
    """What must be found; `optional` ones may be found and are no error either way."""

    stage: str = ""
    cause: str = ""
    cluster: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """From `start_s` on, a share of requests meets `version`."""

    version: str
    start_s: float
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """Open-loop arrivals and the mix of what arrives. Steps are (start_s, rps); bursts (start_s, end_s, rps added)."""

    rps: float = 10.0
    arrivals: Path | None = None
    speedup: float = 1.0
    shape: str = "steady"
    steps: tuple[tuple[float, float], ...] = ()
    bursts: tuple[tuple[float, float, float], ...] = ()
    tasks: Mapping[str, float] = field(default_factory=lambda: DEFAULT_TASKS)
    regions: Mapping[str, float] = field(default_factory=lambda: DEFAULT_REGIONS)
    devices: Mapping[str, float] = field(default_factory=lambda: DEFAULT_DEVICES)
    tiers: Mapping[str, float] = field(default_factory=lambda: DEFAULT_TIERS)
    versions: Mapping[str, float] = field(default_factory=lambda: DEFAULT_VERSIONS)
    users: int = 400
    input_scale: float = 1.0
    output_scale: float = 1.0
    bad_input: float = 0.0
    poll_s: float = 0.0
    slow_tools: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hardening:
    """Every hardening measure as a switch. Each leaves a span attribute or event when it acts."""

    kv_quota: bool = False
    tool_breakers: bool = False
    tiered_timeouts: bool = False
    unicode_cleaning: bool = False
    state_lock: bool = True
    health_check: bool = True
    schema_version: bool = True
    trace_context: bool = True
    memory_watermark: bool = False
    resident_fallback: bool = False
    payload_alert: bool = False
    dynamic_context: bool = False
    fallback_levels: bool = False
    async_answers: bool = False
    answer_cache: bool = False
    fault_drill: bool = False


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """One pool's engine: names from `hardware.py`, and vLLM's knobs. `kind` vllm with a `url` uses a running server (live mode only)."""

    gpu: str
    model: str
    max_num_seqs: int = 32
    block_tokens: int = 16
    prefix_caching: bool = False
    max_model_len: int = 16_384
    kv_quota: float = 1.0
    kind: str = "simulated"
    url: str = ""


DEFAULT_ENGINES: Mapping[str, EngineChoice] = {
    "edge": EngineChoice("Tesla T4", "TinyLlama-1.1B"),
    "middle": EngineChoice("NVIDIA A10", "Phi-3-mini-3.8B", prefix_caching=True),
    "core": EngineChoice("2x NVIDIA A100-SXM4-80GB", "Llama-3-70B-AWQ", max_num_seqs=8, prefix_caching=True),
}
DEFAULT_HOSTS: Mapping[str, int] = dict.fromkeys(("edge", "middle", "core", "tools", "orchestrator", "gateway"), 0)


@dataclass(frozen=True, slots=True)
class Switches:
    """How the stack is set up."""

    tool_select: str = "vector"
    embedding: str = "terms"
    index: str = "product"
    routing: str = "tiered"
    batch: str = "continuous"
    retries: int = 3
    tool_timeout_s: float = 30.0
    lock_timeout_s: float = 3.0
    sampling: float = 1.0
    host_spread: float = 0.05
    rate_limit: float = 1_000.0
    hosts: Mapping[str, int] = field(default_factory=lambda: DEFAULT_HOSTS)
    engines: Mapping[str, EngineChoice] = field(default_factory=lambda: DEFAULT_ENGINES)
    tools: tuple[str, ...] = ()
    hardening: Hardening = field(default_factory=Hardening)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run needs except where to send it."""

    name: str
    title: str = ""
    seconds: float = 600.0
    seed: int = 1
    sample_every_s: float = 0.0
    traffic: Traffic = field(default_factory=Traffic)
    switches: Switches = field(default_factory=Switches)
    faults: tuple[Fault, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    expects: tuple[Expect, ...] = ()

    def scaled(self, seconds: float) -> Scenario:
        """The same story told in `seconds`: all its times stretch or shrink together; rates stay."""
        ratio = seconds / self.seconds
        traffic = replace(
            self.traffic,
            steps=tuple((at * ratio, rps) for at, rps in self.traffic.steps),
            bursts=tuple((start * ratio, end * ratio, rps) for start, end, rps in self.traffic.bursts),
        )
        return replace(
            self,
            seconds=seconds,
            sample_every_s=max(5.0, self.sample_every_s * ratio) if self.sample_every_s else 0.0,
            traffic=traffic,
            faults=tuple(replace(item, start_s=item.start_s * ratio, end_s=item.end_s * ratio) for item in self.faults),
            rollouts=tuple(replace(item, start_s=item.start_s * ratio) for item in self.rollouts),
        )


def runs_model(stage: str, switches: Switches) -> bool:
    """Whether this stage asks a model at all under these switches."""
    if stage == "tool_select":
        return switches.tool_select == "prompt"
    return STAGES[stage].uses_model
