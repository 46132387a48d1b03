"""Named GPUs and models, and what the roofline says about them. Public data-sheet figures (dense FP16, no sparsity); nothing measured by us.
`bench/engine.py` measures such figures of a machine: there they are made, not here."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak FLOP/s and bytes/s of one card (or pod of cards), its memory in bytes, and the shares of peak that real kernels reach.

    Seconds that no roofline knows: `host_step_s` of each engine step (scheduler, launching, sampling), `host_sequence_s` of each running
    sequence and step (attention call, sampling, text of the token, sending it), `pack_s` of each step that reads prompts (matrix
    kernels lay the weights out anew). On a card they overlap with kernels or are small (0); on a CPU the same cores do everything."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: int
    pcie_bytes_per_s: float
    compute_share: float
    bandwidth_share: float
    idle_watts: float
    peak_watts: float
    host_step_s: float = 0.0
    host_sequence_s: float = 0.0
    pack_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters, bytes per parameter as stored, KV bytes per token, and a fixed host-side cost per request in seconds.
    `pair_flops`: FLOP of attention for one token looking at one earlier token, 4 x layers x width; 0 leaves attention out of prefill."""

    name: str
    parameters: float
    bytes_per_parameter: float
    kv_bytes_per_token: int
    overhead_s: float = 0.006
    pair_flops: float = 0.0

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("Tesla T4", 65e12, 320e9, 15 * GIB, 15.75e9, 0.20, 0.80, 10, 70),
        Gpu("NVIDIA A10", 125e12, 600e9, 23 * GIB, 31.5e9, 0.50, 0.80, 20, 150),
        Gpu("2x NVIDIA A100-SXM4-80GB", 624e12, 4078e9, 160 * GIB, 63e9, 0.50, 0.80, 110, 800),
        Gpu("NVIDIA H100", 989e12, 3350e9, 80 * GIB, 63e9, 0.50, 0.80, 70, 700),
        Gpu("CPU 2 cores", 0.32e12, 22e9, 4 * GIB, 15e9, 0.55, 0.50, 5, 25),
    )
}
MODELS = {
    model.name: model
    for model in (
        Model("TinyLlama-1.1B", 1.1e9, 2.0, 22_528),
        Model("Phi-3-mini-3.8B", 3.8e9, 2.0, 393_216),
        Model("Llama-3-70B-AWQ", 70e9, 0.56, 327_680, 0.010),
        Model("Llama-3-8B", 8e9, 2.0, 131_072),
        Model("SmolLM2-135M", 0.135e9, 2.0, 23_040),
    )
}


def prefill_s(gpu: Gpu, model: Model, *prompts: float) -> float:
    """Seconds to read prompts of so many tokens in one step: two FLOP a parameter and token, and the attention of each token to those
    before it in its prompt; never below one read of the weights (roofline)."""
    tokens = sum(prompts)
    if tokens <= 0:
        return 0.0
    flops = 2.0 * model.parameters * tokens + model.pair_flops * sum(0.5 * one * one for one in prompts)
    compute = flops / (gpu.flops_per_s * gpu.compute_share)
    return max(compute, model.weight_bytes / (gpu.bytes_per_s * gpu.bandwidth_share)) + gpu.pack_s


def step_s(gpu: Gpu, model: Model, batch: int, kv_tokens: float) -> float:
    """Seconds for one decode step of `batch` sequences with `kv_tokens` cached in all: the larger of bytes moved and FLOP done,
    and the host's part."""
    moved = model.weight_bytes + kv_tokens * model.kv_bytes_per_token
    compute = 2.0 * model.parameters * batch / (gpu.flops_per_s * gpu.compute_share)
    kernels = max(moved / (gpu.bytes_per_s * gpu.bandwidth_share), compute)
    return kernels + gpu.host_step_s + batch * gpu.host_sequence_s
