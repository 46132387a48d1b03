"""What a dcgm-exporter, a vLLM server and a node exporter would say at an instant, from the same state that made the spans slow."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from instrumented_stack.catalogue import Stage
from instrumented_stack.engine_sim import Engine
from instrumented_stack.hardware import GPUS, Gpu
from instrumented_stack.scenario import Fault
from instrumented_stack.world import World, model_stages

MIB = 1 << 20
GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number: series name, value, gauge or counter, labels, and the exporter and host it comes from."""

    name: str
    value: float
    kind: str
    labels: Mapping[str, str]
    job: str
    host: str


@dataclass(slots=True)
class _Seen:
    busy_s: float = 0.0
    prefill_s: float = 0.0


@dataclass(slots=True)
class Sampler:
    """Reads a world between two instants. Noise comes from its own generator, so looking changes nothing."""

    world: World
    rng: random.Random
    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    cpu_seen: dict[str, float] = field(default_factory=dict)
    at_s: float = 0.0

    def read(self, now_s: float) -> Iterator[Sample]:
        """All samples for the interval since the last call, stamped `now_s` by the caller."""
        since, self.at_s = self.at_s, now_s
        if now_s <= since:
            return
        for pool in ("edge", "middle", "core"):
            for host in self.world.hosts[pool]:
                for stage in model_stages(self.world.scenario, pool):
                    yield from self._gpu(host, stage, since, now_s)
        for hosts in self.world.hosts.values():
            for host in hosts:
                yield from self._host(host, since, now_s)

    def _gpu(self, host: str, stage: Stage, since: float, now: float) -> Iterator[Sample]:
        engine = self.world.engine(host, stage)
        if not isinstance(engine, Engine):
            return  # a real engine has a /metrics page and a device of its own
        faults = self.world.faults.on_host(stage.name, host, since, now)
        gpu = GPUS[engine.options.gpu.name]
        busy, prefill = self._busy(engine, (host, stage.name), now - since)
        jitter = self.rng.uniform
        sm = 0.02 + 0.60 * prefill + 0.34 * (busy - prefill) + jitter(0, 0.03)
        dram = 0.02 + 0.35 * prefill + 0.62 * (busy - prefill) + jitter(0, 0.03)
        received, sent = (2e7 + 4e8 * busy) * jitter(0.8, 1.2), (1e7 + 2e8 * busy) * jitter(0.8, 1.2)
        usage = min(0.80, engine.usage() + 0.25 * busy)
        for fault, share in faults:
            if fault.kind == "gpu_contention":
                sm, dram = _blend(sm, jitter(0.94, 0.99), share), _blend(dram, jitter(0.7, 0.85), share)
            elif fault.kind == "pcie_saturation":
                sm = _blend(sm, jitter(0.5, 0.65), share)
                received = _blend(received, gpu.pcie_bytes_per_s * jitter(0.88, 0.95), share)
            elif fault.kind in ("kv_cache_pressure", "kv_overflow"):
                usage = _blend(usage, jitter(0.93, 0.99), share)
        yield from self._dcgm(host, stage, gpu, engine, (sm, dram, received, sent, usage, busy))
        yield from _vllm(host, stage, engine, usage)

    def _busy(self, engine: Engine, key: tuple[str, str], seconds: float) -> tuple[float, float]:
        """Shares of the interval with anything running, and in prefill."""
        seen = self.seen.setdefault(key, _Seen())
        busy = (engine.counters.busy_s - seen.busy_s) / seconds
        prefill = (engine.counters.prefill_s - seen.prefill_s) / seconds
        seen.busy_s, seen.prefill_s = engine.counters.busy_s, engine.counters.prefill_s
        return min(1.0, busy), min(1.0, prefill)

    def _dcgm(self, host: str, stage: Stage, gpu: Gpu, engine: Engine, now: tuple[float, ...]) -> Iterator[Sample]:
        sm, dram, received, sent, usage, busy = now
        labels = _card(host, stage.gpu, gpu.name)
        cache = engine.kv_blocks * engine.options.block_tokens * engine.options.model.kv_bytes_per_token
        used = min(gpu.memory_bytes * 0.98, engine.options.model.weight_bytes + gpu.memory_bytes * 0.06 + usage * cache)
        values = {
            "DCGM_FI_PROF_SM_ACTIVE": round(min(sm, 1.0), 4),
            "DCGM_FI_PROF_DRAM_ACTIVE": round(min(dram, 1.0), 4),
            "DCGM_FI_PROF_PCIE_RX_BYTES": round(received),
            "DCGM_FI_PROF_PCIE_TX_BYTES": round(sent),
            "DCGM_FI_DEV_FB_USED": round(used / MIB),
            "DCGM_FI_DEV_FB_FREE": round((gpu.memory_bytes - used) / MIB),
            "DCGM_FI_DEV_GPU_UTIL": round(100 * max(busy, sm)),
            "DCGM_FI_DEV_POWER_USAGE": round(
                gpu.idle_watts + (gpu.peak_watts - gpu.idle_watts) * min(1.0, max(sm, dram)), 1
            ),
            "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 3
            if gpu.pcie_bytes_per_s < 16e9
            else 4
            if gpu.pcie_bytes_per_s < 32e9
            else 5,
            "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
        }
        for name, value in values.items():
            yield Sample(name, value, GAUGE, labels, "dcgm-exporter", host)

    def _host(self, host: str, since: float, now: float) -> Iterator[Sample]:
        jitter, pool = self.rng.uniform, host.rsplit("-", 1)[0]
        total = self.world.cpu_busy_s.get(host, 0.0)
        cpu = 0.12 + jitter(0, 0.06) + (total - self.cpu_seen.get(host, 0.0)) / (now - since) / 4
        self.cpu_seen[host] = total
        queue, iops, rtt = jitter(0.1, 0.8), jitter(80, 240), jitter(0.4, 0.9)
        for fault, share in self._host_faults(pool, host, since, now):
            if fault.kind == "storage_wait":
                queue, iops = _blend(queue, jitter(14, 40), share), _blend(iops, jitter(2_800, 3_000), share)
            elif fault.kind == "cpu_blocking":
                cpu = _blend(cpu, jitter(0.82, 0.95), share)
            elif fault.kind == "network_hop":
                rtt = _blend(rtt, 90 * fault.strength * jitter(0.85, 1.2), share)
        values = {
            "system.cpu.utilization": min(1.0, cpu),
            "stagescope.host.load_per_cpu": cpu * jitter(0.9, 1.1),
            "system.memory.utilization": jitter(0.42, 0.48),
            "stagescope.host.disk.queue": queue,
            "stagescope.host.disk.iops": iops,
            "stagescope.host.disk.busy": min(1.0, queue / 12),
        }
        for name, value in values.items():
            yield Sample(name, round(value, 4), GAUGE, {}, "node", host)
        yield Sample("stagescope.host.net.rtt_ms", round(rtt, 3), GAUGE, {"peer": "orchestrator-1"}, "node", host)

    def _host_faults(self, pool: str, host: str, since: float, now: float) -> list[tuple[Fault, float]]:
        stages = self.world.stages_of(pool)
        return [hit for stage in stages for hit in self.world.faults.on_host(stage, host, since, now)]


@lru_cache(maxsize=4_096)
def _card(host: str, number: int, model: str) -> Mapping[str, str]:
    """The labels of a card, as dcgm-exporter writes them."""
    about = {
        "gpu": str(number),
        "UUID": "GPU-" + hashlib.blake2b(f"{host}/{number}".encode(), digest_size=8).hexdigest(),
        "device": f"nvidia{number}",
        "modelName": model,
        "Hostname": host,
    }
    return MappingProxyType(about)


@lru_cache(maxsize=4_096)
def _instance(model: str, number: int) -> Mapping[str, str]:
    return MappingProxyType({"model_name": model, "engine": str(number)})


def _blend(calm: float, stormy: float, share: float) -> float:
    return calm + (stormy - calm) * share


def _vllm(host: str, stage: Stage, engine: Engine, usage: float) -> Iterator[Sample]:
    labels = _instance(engine.options.model.name, stage.gpu)
    totals = engine.counters
    values = (
        ("vllm:num_requests_running", len(engine.decoding) + len(engine.prefilling), GAUGE),
        ("vllm:num_requests_waiting", len(engine.waiting), GAUGE),
        ("vllm:kv_cache_usage_perc", round(usage, 4), GAUGE),
        ("vllm:num_preemptions_total", totals.preemptions, COUNTER),
        ("vllm:prefix_cache_queries_total", totals.prefix_queries, COUNTER),
        ("vllm:prefix_cache_hits_total", totals.prefix_hits, COUNTER),
        ("vllm:prompt_tokens_total", totals.prompt_tokens, COUNTER),
        ("vllm:generation_tokens_total", totals.generation_tokens, COUNTER),
        ("vllm:estimated_flops_per_gpu_total", totals.flops, COUNTER),
        ("vllm:estimated_read_bytes_per_gpu_total", totals.read_bytes, COUNTER),
    )
    for name, value, kind in values:
        yield Sample(name, value, kind, labels, "vllm", host)
