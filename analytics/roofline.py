"""What the hardware allows at best: peak FLOP/s and bytes/s of named GPUs, size of named models, and the floor of a generation.

Must stay true: a floor is never above what the data sheet permits; unknown hardware or model gives None, not a guess.
Source: Williams, Waterman & Patterson 2009 (roofline); figures are the makers' data sheets, dense FP16.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak dense FP16 FLOP/s and memory bytes/s of one card (or of several taken together)."""

    name: str
    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP a byte at which memory and arithmetic take equal time."""
        return self.flops_per_s / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Size:
    """Parameters of a model and bytes per parameter as stored."""

    parameters: float
    bytes_per_parameter: float

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter


GPUS: tuple[Gpu, ...] = (
    Gpu("H200", 989e12, 4_800e9),
    Gpu("H100", 989e12, 3_350e9),
    Gpu("A100-SXM4-80GB", 312e12, 2_039e9),
    Gpu("A100 80GB PCIE", 312e12, 1_935e9),
    Gpu("A100", 312e12, 1_555e9),
    Gpu("L40S", 362e12, 864e9),
    Gpu("L4", 121e12, 300e9),
    Gpu("A10G", 125e12, 600e9),
    Gpu("A10", 125e12, 600e9),
    Gpu("V100", 125e12, 900e9),
    Gpu("T4", 65e12, 320e9),
)
_TIMES = re.compile(r"^\s*(\d+)\s*[x×]\s*", re.IGNORECASE)
_BILLIONS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*b(?![a-z])", re.IGNORECASE)
_MILLIONS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*m(?![a-z])", re.IGNORECASE)
_FOUR_BIT = re.compile(r"awq|gptq|int4|4bit|nf4|q4", re.IGNORECASE)
_EIGHT_BIT = re.compile(r"int8|8bit|fp8|w8a8|q8", re.IGNORECASE)


def gpu(name: str) -> Gpu | None:
    """The card a name means, `2x NVIDIA A100-SXM4-80GB` as two together; None when it is not known."""
    found = _TIMES.match(name)
    count = int(found[1]) if found else 1
    plain = re.sub(r"[\s_]+", " ", _TIMES.sub("", name)).lower()
    for card in GPUS:
        if re.search(rf"(?<![a-z0-9]){re.escape(card.name.lower())}(?![0-9])", plain):
            return Gpu(name, card.flops_per_s * count, card.bytes_per_s * count)
    return None


def size(model: str) -> Size | None:
    """Parameters and precision as a model's name gives them (`Llama-3-70B-AWQ`: 70e9 at 0.56 bytes); None when it does not."""
    plain = model.replace("_", "-")
    billions, millions = _BILLIONS.findall(plain), _MILLIONS.findall(plain)
    if not billions and not millions:
        return None
    parameters = (
        max((float(value) for value in billions), default=0.0) * 1e9 or max(float(value) for value in millions) * 1e6
    )
    stored = 0.56 if _FOUR_BIT.search(plain) else 1.0 if _EIGHT_BIT.search(plain) else 2.0
    return Size(parameters, stored)


def prefill_s(card: Gpu, model: Size, tokens: float) -> float:
    """Least seconds to read a prompt: two FLOP a parameter and token, and at least one read of the weights."""
    if tokens <= 0:
        return 0.0
    return max(2.0 * model.parameters * tokens / card.flops_per_s, model.weight_bytes / card.bytes_per_s)


def decode_s(card: Gpu, model: Size, batch: int = 1) -> float:
    """Least seconds of one decode step: each step reads all weights once, whatever the batch, until arithmetic binds."""
    return max(model.weight_bytes / card.bytes_per_s, 2.0 * model.parameters * batch / card.flops_per_s)


def floor_rates_ms(gpu_name: str, model_name: str) -> tuple[float, float] | None:
    """(ms a prompt token, ms an output token) that no engine can beat; None when card or model is not known."""
    card, model = gpu(gpu_name), size(model_name)
    if card is None or model is None:
        return None
    return 2e3 * model.parameters / card.flops_per_s, 1e3 * model.weight_bytes / card.bytes_per_s


def binds(card: Gpu, model: Size, tokens_at_once: float) -> str:
    """What binds a pass over `tokens_at_once` tokens: `memory` (decode) or `compute` (long prefill)."""
    intensity = 2.0 * model.parameters * tokens_at_once / model.weight_bytes
    return "compute" if intensity >= card.ridge else "memory"
