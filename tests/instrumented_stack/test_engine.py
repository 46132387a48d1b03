"""The simulated engine: its times follow the roofline, its cache never holds more than it has, nothing is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instrumented_stack.batching import BatchPolicy, StaticBatch
from instrumented_stack.clock import run_virtual
from instrumented_stack.engine import Answer, Ask, EngineOptions
from instrumented_stack.engine_sim import Engine
from instrumented_stack.errors import ResourceExhausted
from instrumented_stack.hardware import GPUS, MODELS, prefill_s, step_s

H100 = EngineOptions(GPUS["NVIDIA H100"], MODELS["Llama-3-8B"])


def together(engine: Engine, asks: list[Ask]) -> list[Answer]:
    async def main() -> list[Answer]:
        return list(await asyncio.gather(*(engine.generate(ask) for ask in asks)))

    return run_virtual(main())


def test_one_request_takes_what_the_roofline_says() -> None:
    (answer,) = together(Engine(H100), [Ask(2_048, 100)])
    gpu, model = H100.gpu, H100.model
    low, high = (step_s(gpu, model, 1, tokens) for tokens in (2_048, 2_148))
    assert (
        prefill_s(gpu, model, 2_048) + 100 * low * 0.999
        <= answer.total_s
        <= prefill_s(gpu, model, 2_048) + 100 * high * 1.001
    )
    assert answer.first_token_s == pytest.approx(prefill_s(gpu, model, 2_048), rel=1e-3)
    assert (answer.queue_s, answer.preemptions, answer.cached_tokens) == (0, 0, 0)


def test_the_figures_of_the_field_come_out() -> None:
    """A 7B model in FP16: 14 GB, decode bound by memory (about 14 GB over 3.35 TB/s a token), prefill by compute."""
    model = replace(MODELS["Llama-3-8B"], parameters=7e9)
    gpu = GPUS["NVIDIA H100"]
    assert model.weight_bytes == 14e9
    assert step_s(gpu, model, 1, 0) == pytest.approx(14e9 / (3.35e12 * gpu.bandwidth_share))
    assert prefill_s(gpu, model, 2_048) == pytest.approx(2 * 7e9 * 2_048 / (989e12 * gpu.compute_share))


def test_batching_shares_the_weights() -> None:
    alone = together(Engine(H100), [Ask(100, 200)])[0].total_s
    eight = max(answer.total_s for answer in together(Engine(H100), [Ask(100, 200)] * 8))
    assert eight < 1.6 * alone


def test_more_than_max_num_seqs_wait() -> None:
    engine = Engine(replace(H100, max_num_seqs=2))
    answers = together(engine, [Ask(100, 50)] * 5)
    assert sorted(answer.queue_s > 0 for answer in answers) == [False, False, True, True, True]
    assert max(answer.batch_size for answer in answers if answer.batch_size) <= 2


def test_a_shared_prefix_is_read_once_and_in_whole_blocks() -> None:
    engine = Engine(replace(H100, prefix_caching=True))
    first, second = (together(engine, [Ask(1_000, 5, "system", 500)])[0] for _ in range(2))
    assert (first.cached_tokens, second.cached_tokens) == (0, 496)
    assert second.first_token_s < 0.6 * first.first_token_s
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (2_000, 496)


def test_a_small_cache_preempts_and_still_finishes() -> None:
    blocks = 200
    quota = blocks * 16 * H100.model.kv_bytes_per_token / (H100.gpu.memory_bytes * 0.9 - H100.model.weight_bytes)
    engine = Engine(replace(H100, kv_quota=quota * 1.001))
    assert engine.kv_blocks == blocks
    answers = together(engine, [Ask(600, 500)] * 5)
    assert engine.counters.preemptions > 0
    assert engine.counters.generation_tokens == 2_500
    assert max(answer.kv_usage or 0 for answer in answers) > 0.9


def test_what_can_never_fit_is_refused() -> None:
    for ask in (Ask(20_000, 10), Ask(10, 20_000)):
        with pytest.raises(ResourceExhausted, match="GPU memory allocation failed"):
            together(Engine(H100), [ask])


asks = st.builds(
    Ask,
    input_tokens=st.integers(1, 3_000),
    output_tokens=st.integers(1, 400),
    prefix=st.sampled_from(["", "a", "b"]),
    prefix_tokens=st.integers(0, 500),
    effort=st.floats(0.2, 5),
    hold_s=st.floats(0, 0.5),
)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.lists(asks, min_size=1, max_size=12),
    seqs=st.integers(1, 8),
    quota=st.floats(0.012, 1.0),
    when=st.lists(st.floats(0, 3), min_size=12, max_size=12),
)
def test_every_request_ends_once_and_never_faster_than_the_roofline(
    batch: list[Ask], seqs: int, quota: float, when: list[float]
) -> None:
    engine = Engine(replace(H100, max_num_seqs=seqs, kv_quota=quota, prefix_caching=True))

    async def one(ask: Ask, delay: float) -> Answer:
        await asyncio.sleep(delay)
        answer = await engine.generate(
            replace(ask, preempt_at=(ask.output_tokens // 2,) if ask.output_tokens > 3 else ())
        )
        assert engine._used() <= engine.kv_blocks or len(engine.decoding) <= 1
        return answer

    async def main() -> list[Answer]:
        return list(await asyncio.gather(*map(one, batch, when)))

    answers = run_virtual(main())
    for ask, answer in zip(batch, answers, strict=True):
        floor = ask.output_tokens * step_s(H100.gpu, H100.model, 1, 0) * ask.effort
        assert answer.total_s >= 0.99 * floor
        assert answer.first_token_s <= answer.total_s + 1e-9
        assert 0 <= (answer.kv_usage or 0) <= 1
    assert not engine.waiting
    assert not engine.decoding
    assert not engine.prefilling
    assert engine.counters.generation_tokens == sum(ask.output_tokens for ask in batch)


def test_a_static_batch_ends_with_its_slowest() -> None:
    async def main() -> tuple[list[tuple[Answer, float]], float]:
        batch = StaticBatch(Engine(H100))
        lengths = (20, 40, 400)
        got = await asyncio.gather(*(batch.generate(Ask(100, tokens), BatchPolicy(4, 0.3)) for tokens in lengths))
        return list(got), asyncio.get_running_loop().time()

    got, end = run_virtual(main())
    assert [round(waited, 1) for _, waited in got][2] == 0.3
    for answer, waited in got:
        assert answer.total_s + waited == pytest.approx(end, rel=1e-6)
        assert answer.batch_size == 3


def test_virtual_time_notices_when_nothing_can_come() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing left to wait for"):
        run_virtual(main())
