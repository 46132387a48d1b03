"""The small protocol that every engine speaks, simulated or real: ask for a generation, get the answer with what the engine knows about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from instrumented_stack.hardware import Gpu, Model


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What vLLM calls max_num_seqs, block size, prefix caching, max model length, and the share of free memory that the cache may take."""

    gpu: Gpu
    model: Model
    max_num_seqs: int = 32
    block_tokens: int = 16
    prefix_caching: bool = False
    max_model_len: int = 16_384
    kv_quota: float = 1.0
    chunk_tokens: int = 512

    @property
    def kv_blocks(self) -> int:
        """Blocks that fit beside the weights in nine tenths of the memory."""
        free = self.gpu.memory_bytes * 0.9 - self.model.weight_bytes
        return max(1, int(free * self.kv_quota / (self.block_tokens * self.model.kv_bytes_per_token)))


@dataclass(frozen=True, slots=True)
class Ask:
    """One generation: token counts, the prefix that is the same on every call, and how much harder than the roofline it is (1 = equal).
    `text`, `system` (how the prompt begins), `choices` (the only answers allowed) and `headers` (trace context) matter to real engines alone.
    `preempt_at`: generated tokens at which a neighbour takes its blocks; `hold_s`: time until it gets blocks again."""

    input_tokens: int
    output_tokens: int
    prefix: str = ""
    prefix_tokens: int = 0
    effort: float = 1.0
    preempt_at: tuple[int, ...] = ()
    hold_s: float = 0.0
    text: str = ""
    system: str = ""
    choices: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine knows about one finished generation. Seconds; `kv_usage` 0..1 is the highest seen while it ran.
    None: this engine does not say. Token counts of 0 mean: as asked."""

    queue_s: float | None
    first_token_s: float
    total_s: float
    cached_tokens: int
    batch_size: int | None
    preemptions: int
    kv_usage: float | None
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Generates(Protocol):
    """An engine. `simulated` is True where no model ran."""

    simulated: bool
    options: EngineOptions
    held_share: float

    async def generate(self, ask: Ask) -> Answer:
        """Wait for the whole answer. Raises ResourceExhausted when the request can never fit."""
