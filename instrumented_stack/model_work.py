"""A stage's work on a model: the prompt it sends, what the engine made of it, and what falls back when the engine refuses."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from instrumented_stack.batching import BatchPolicy
from instrumented_stack.catalogue import CATEGORY_TOKENS_PER_TOOL, POLICY_TOKENS, SCHEMA_TOKENS_PER_TOOL, STAGES
from instrumented_stack.conditions import Run
from instrumented_stack.engine import Answer, Ask
from instrumented_stack.errors import AgentError, ResourceExhausted, ServiceDegradedError
from instrumented_stack.hardening import WATERMARK
from instrumented_stack.propagation import inject
from instrumented_stack.select import schemas


async def ask_model(run: Run) -> None:
    """One generation, with everything that the span must say about it."""
    world, stage, request = run.world, run.stage, run.request
    engine = world.engine(run.host, stage)
    prompt, repeated = _prompt(run)
    output = request.output_tokens if stage.name == "llm_generate" and request.output_tokens else 0
    output = output or run.count(stage.output, request.output_scale if stage.kind == "generate" else 1.0)
    preempt = _preemptions(run, output)
    if run.overlong:
        prompt = _overlong(run, engine.options.max_model_len, output)
    _say_model(run, prompt, repeated, engine.options.model.name)
    if run.held_share:
        engine.held_share = run.held_share
        run.facts["kv_usage"] = round(run.held_share, 4)
    ask = Ask(prompt, output, stage.name, stage.system_tokens, run.effort * run.tail(0.05), preempt, run.hold_s)
    if not engine.simulated:
        ask = _in_words(run, ask, repeated)
    else:
        run.closing_s += engine.options.model.overhead_s * run.effort
    try:
        if run.batch_window_s or world.switches.batch == "static":
            policy = BatchPolicy(4, run.batch_window_s or 0.3)
            answer, waited = await world.batch(run.host, stage).generate(ask, policy)
            run.add("batch_wait_ms", waited * 1e3)
        else:
            answer = await engine.generate(ask)
    finally:
        engine.held_share = 0.0
    if ask.choices and answer.text in ask.choices:
        run.span.set("agent.tool_choice", answer.text)
    _say_answer(run, answer, output)


def _in_words(run: Run, ask: Ask, repeated: int) -> Ask:
    """What a real engine needs besides counts: text, the answers allowed, and the trace context."""
    choices = run.world.switches.tools if run.stage.name == "tool_select" else ()
    pasted = schemas(choices) if run.world.switches.tool_select == "prompt" else ""
    headers = inject(run.span.link)
    return replace(ask, prefix_tokens=repeated, text=run.request.text, system=pasted, choices=choices, headers=headers)


def _prompt(run: Run) -> tuple[int, int]:
    """(all prompt tokens, tokens of them that are the same on every call)."""
    stage, request = run.stage, run.request
    repeated = stage.system_tokens + run.extra_tokens
    if stage.name == "tool_select":
        tools = len(run.world.switches.tools)
        if run.world.switches.tool_select == "prompt":
            repeated += POLICY_TOKENS + SCHEMA_TOKENS_PER_TOOL * tools
        elif not run.extra_tokens:
            repeated += CATEGORY_TOKENS_PER_TOOL * tools
    own = run.count(stage.input, request.input_scale)
    own += request.history_tokens if stage.name == "llm_generate" else 0
    longest = run.world.switches.engines[run.pool].max_model_len
    return min(repeated + own, max(1, longest - 2_048)), repeated


def _overlong(run: Run, longest: int, output: int) -> int:
    """A dialogue that has outgrown the model: cut it, refuse it, or let the engine fail."""
    hardening = run.world.switches.hardening
    tokens = longest + int(4_000 * run.lognormal(0.3))
    if hardening.dynamic_context:
        keep = int(0.8 * longest) - output
        run.span.event("context.truncated", {"stagescope.context.removed_tokens": tokens - keep})
        return max(1, keep)
    if hardening.kv_quota:
        run.span.event("kv_quota.refused", {"gen_ai.usage.input_tokens": tokens, "limit": longest})
        raise ResourceExhausted("KV quota of this worker refused the request: context longer than the model")
    return tokens


def _preemptions(run: Run, output: int) -> tuple[int, ...]:
    """Generated tokens at which a neighbour's sequence takes this one's blocks."""
    if not run.preemptions or output < 2:
        return ()
    rng, count, left = run.request.rng, 0, run.preemptions
    while left > 0 and count < min(8, output - 1):
        left -= rng.expovariate(1.0)
        count += left > 0
    return tuple(sorted(rng.sample(range(1, output), min(max(1, count), output - 1))))


def _say_model(run: Run, prompt: int, repeated: int, model: str) -> None:
    span = run.span
    span.set("gen_ai.operation.name", "chat")
    simulated = run.world.engine(run.host, run.stage).simulated
    span.set("gen_ai.provider.name", "simulated" if simulated else "vllm")
    span.set("gen_ai.request.model", model)
    span.set("gen_ai.usage.input_tokens", prompt)
    span.set("stagescope.prompt.repeated_tokens", repeated)
    if simulated:
        span.set("stagescope.simulated", True)
        span.set(
            "stagescope.gpu", str(list(STAGES).index(run.stage.name) if run.pool != run.stage.pool else run.stage.gpu)
        )
    if run.stage.name == "tool_select":
        span.set("stagescope.work.items", len(run.world.switches.tools))


def _say_answer(run: Run, answer: Answer, output: int) -> None:
    span = run.span
    span.set("gen_ai.usage.output_tokens", answer.output_tokens or output)
    if answer.input_tokens:
        span.set("gen_ai.usage.input_tokens", answer.input_tokens)
    if answer.cached_tokens:
        span.set("gen_ai.usage.cache_read.input_tokens", answer.cached_tokens)
    span.set("gen_ai.response.time_to_first_chunk", round(answer.first_token_s, 4))
    if answer.batch_size is not None:
        span.set("stagescope.batch_size", answer.batch_size)
    if answer.queue_s is not None:
        run.add("queue_ms", answer.queue_s * 1e3)
    if answer.kv_usage is None:
        return
    usage = max(answer.kv_usage, run.held_share)
    run.facts["kv_usage"] = round(usage, 4)
    if answer.preemptions:
        span.set("stagescope.preemptions", answer.preemptions)
    if run.world.switches.hardening.memory_watermark and usage > WATERMARK:
        span.event("memory.watermark", {"stagescope.kv_usage": round(usage, 4), "limit": WATERMARK})


async def ask_smaller(run: Run, error: AgentError) -> None:
    """Fallback in three levels: a smaller model; a quantised one on the CPU; a structured error beside a cached answer."""
    level = 3 if run.over_quota else 2 if run.degraded else 1
    run.span.set("stagescope.fallback", level)
    run.span.event("fallback", {"stagescope.fallback": level, "reason": type(error).__name__})
    if level == 3:
        raise ServiceDegradedError(f"answered from cache: {error}") from error
    output = max(1, run.count(run.stage.output, 1.0))
    run.span.set("gen_ai.usage.output_tokens", output)
    await asyncio.sleep((0.05 if level == 1 else 0.2) + output * (0.009 if level == 1 else 0.06))


async def select_by_vector(run: Run) -> None:
    """Nearest neighbour among tool schemas embedded once; needs no GPU."""
    began = time.perf_counter()
    choice = run.world.choose_tool(run.request.text)
    spent = time.perf_counter() - began if choice else 0.0
    if choice:
        run.span.set("agent.tool_choice", choice)
    busy = max(0.0, 0.023 * run.effort * run.tail(0.12) - spent)
    run.span.set("stagescope.work.items", len(run.world.switches.tools))
    run.add("cpu_ms", busy * 800)
    run.closing_s += busy
