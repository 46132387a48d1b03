"""This machine's roofline: what its memory and its cores do, measured without vLLM, and what vLLM's kernels make of them, measured
in a calibration run.

Must stay true: no point that the curve compares takes part in the calibration (other prompt lengths, other numbers of clients).
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from bench.engine_load import RealServer, Shape, Timing, closed_loop
from instrumented_stack.engine import EngineOptions
from instrumented_stack.hardware import GIB, Gpu, Model

STEP_TOKENS = 2_048
PROMPTS = (48, 256, 768)
BATCHES = (1, 2, 6, 12)
BATCH_PROMPT, DECODE = 96, 24
REPEATS = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes read from memory a second and FLOP/s of a large float32 matrix product, all cores."""

    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Median seconds: of a request that asks no model, to the first token by prompt length (one client), and of one decode step by
    sequences in it."""

    host_s: float
    prefill_s: dict[int, float]
    step_s: dict[int, float]


def measure_machine(cores: int) -> Machine:
    """Sums over 256 MB a core, and products of 1,536 x 1,536 matrices; best of five."""
    arrays = [np.ones(64 << 20, np.float32) for _ in range(cores)]
    left = np.ones((1536, 1536), np.float32)
    with ThreadPoolExecutor(cores) as pool:
        read = _best(lambda: list(pool.map(np.sum, arrays)))
    product = _best(lambda: left @ left)
    return Machine(sum(item.nbytes for item in arrays) / read, 2 * 1536**3 / product)


def _best(work: object) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        work()  # type: ignore[operator]
        taken.append(time.perf_counter() - began)
    return min(taken)


async def calibrate(server: RealServer) -> Calibration:
    """A few requests of other shapes than the curve's."""
    host = [await server.touch(PROMPTS[0]) for _ in range(5)]
    prefill = {
        tokens: statistics.median(item.first_s for item in await closed_loop(server.ask, Shape(tokens, 1, 1, REPEATS)))
        for tokens in PROMPTS
    }
    step = {batch: step_of(await closed_loop(server.ask, Shape(BATCH_PROMPT, DECODE, batch))) for batch in BATCHES}
    return Calibration(statistics.median(host), prefill, step)


def middle(parts: list[Calibration]) -> Calibration:
    """The median of several, figure by figure."""
    return Calibration(
        statistics.median(item.host_s for item in parts),
        {tokens: statistics.median(item.prefill_s[tokens] for item in parts) for tokens in PROMPTS},
        {batch: statistics.median(item.step_s[batch] for item in parts) for batch in BATCHES},
    )


def step_of(timings: list[Timing]) -> float:
    """Median time between tokens while all sequences were being decoded."""
    low, high = max(item.tokens_s[0] for item in timings), min(item.tokens_s[-1] for item in timings)
    gaps = [
        after - before
        for item in timings
        for before, after in zip(item.tokens_s, item.tokens_s[1:], strict=False)
        if before >= low and after <= high
    ]
    return statistics.median(gaps)


def roofline(machine: Machine, found: Calibration, plain: Model) -> tuple[Gpu, Model]:
    """The machine as the simulation takes it. Least squares of relative error, no negative rate:
    step(b) = weights / bandwidth + host_step + b x host_sequence;  first(n) = host + pack + host_step + (2Pn + pair n^2 / 2) / flops."""
    weights_s = plain.weight_bytes / machine.bytes_per_s
    step, sequence = _fit(
        [[1.0, batch] for batch in found.step_s], [took - weights_s for took in found.step_s.values()]
    )
    rows = [[1.0, 2 * plain.parameters * tokens, 0.5 * tokens * tokens] for tokens in found.prefill_s]
    pack, flop_s, pair_s = _fit(rows, [took - step - found.host_s for took in found.prefill_s.values()])
    gpu = Gpu(
        "this machine",
        machine.flops_per_s,
        machine.bytes_per_s,
        4 * GIB,
        machine.bytes_per_s,
        1 / (flop_s * machine.flops_per_s),
        1.0,
        0,
        0,
        step,
        sequence,
        pack,
    )
    return gpu, replace(plain, overhead_s=found.host_s, pair_flops=pair_s / flop_s)


def options_of(gpu: Gpu, model: Model) -> EngineOptions:
    """vLLM's options as bench/engine.py sets them."""
    return EngineOptions(gpu, model, 16, 32, False, 2_048, 1.0, STEP_TOKENS)


def _fit(rows: list[list[float]], took_s: list[float]) -> list[float]:
    scale = np.array(took_s)
    if (scale <= 0).any():
        raise SystemExit("the calibration took less time than reading the weights does: measure on a machine at rest")
    matrix = np.array(rows) / scale[:, None]
    size = matrix.max(axis=0)
    found, _ = nnls(matrix / size, np.ones(len(rows)))
    return [float(value) for value in found / size]
