"""The execution layer: one stage run on one host. The server span of a stage carries its work, so that whoever reads it can judge the time."""

from __future__ import annotations

import asyncio
import json

from instrumented_stack.batching import BatchPolicy
from instrumented_stack.catalogue import CATEGORY_TOKENS_PER_TOOL, POLICY_TOKENS, POOLS, STAGES, TOOLS_BY_NAME, Tokens
from instrumented_stack.conditions import CONDITIONS, Run, bloated_prompt
from instrumented_stack.engine import Answer, Ask
from instrumented_stack.errors import AgentExecutionFailed, ResourceExhausted, ServiceDegradedError, StateConflictError
from instrumented_stack.scenario import runs_model
from instrumented_stack.telemetry import SERVER, Link
from instrumented_stack.world import Request, World

_JSON = json.JSONEncoder(ensure_ascii=False)
SERIALISE_S_PER_MB = 0.09
FALLBACK_MODEL = "TinyLlama-1.1B"


def pool_of(world: World, request: Request, stage: str) -> str:
    """Which pool serves this stage for this request: its own, or core for whatever asks a model when routing says so."""
    facts = {**request.dims, "tier": STAGES[stage].pool}
    oversized = any(item.kind == "oversized_model" for item in world.faults.active(stage, facts, world.now_s()))
    if oversized or (world.switches.routing == "all_core" and runs_model(stage, world.switches)):
        return "core"
    return STAGES[stage].pool


async def serve(world: World, request: Request, step: tuple[str, str], host: str, link: Link) -> None:
    """Run one step (stage, tool) on `host` under its own server span; errors are recorded there and raised."""
    stage, tool = step
    pool = host.rsplit("-", 1)[0]
    place = world.place(POOLS[pool], host, request.dims["version"])
    span = world.tracing.start(place, stage, SERVER, link)
    run = Run(world, STAGES[stage], request, host, span, tool=tool, pool=pool)
    world.in_flight[host] = world.in_flight.get(host, 0) + 1
    try:
        _describe(run)
        await _work(run)
    except (
        AgentExecutionFailed,
        ResourceExhausted,
        ServiceDegradedError,
        StateConflictError,
        TimeoutError,
        ValueError,
    ) as error:
        span.fail(error, origin=True)
        raise
    finally:
        world.in_flight[host] -= 1
        for fact, amount in run.facts.items():
            span.set(f"stagescope.{fact}", int(amount) if fact == "lock_holders" else round(amount, 3))
        span.end()


def _describe(run: Run) -> None:
    span, stage = run.span, run.stage
    span.set("stagescope.stage", stage.name)
    span.set("stagescope.kind", stage.kind)
    if run.pool != "tools":
        span.set("stagescope.tier", run.pool)
    run.facts["uptime_s"] = round(run.world.uptime_s(run.host), 1)
    reflecting = run.request.state.get("reflecting") == stage.name or stage.name == "self_reflection"
    if reflecting or stage.kind == "check":
        span.set("stagescope.outcome_changed", run.chance(0.037 if reflecting else 0.22))


async def _work(run: Run) -> None:
    world, request = run.world, run.request
    tier = {"tier": run.pool, "host": run.host, "tool": run.tool, "service": POOLS[run.pool]}
    facts = {**request.dims, **tier}
    active = world.faults.active(run.stage.name, facts, world.now_s())
    run.effort = world.host_speed(run.host)
    run.payload_bytes = int(22_000 * run.lognormal(0.4))
    bloat = any(item.kind in ("prompt_bloat", "oversized_model") for item in active)
    for fault in active:
        await CONDITIONS[fault.kind](run, fault)
    _refuse(run)
    if run.tool:
        await _with_retries(run, _call_tool)
    elif run.stage.uses_model and (runs_model(run.stage.name, world.switches) or bloat):
        await _with_retries(run, _ask_model)
    else:
        await _with_retries(run, _select_by_vector)
    await _hand_over(run)


def _refuse(run: Run) -> None:
    """Quotas and degraded mode are checked before any work."""
    if run.over_quota:
        raise AgentExecutionFailed("resource_quota_exhausted")
    if run.degraded:
        run.span.set("stagescope.degraded", True)
        run.span.set("stagescope.fallback", 2)
        raise ServiceDegradedError("fallback_to_basic_mode")
    if run.fallback:
        run.span.set("stagescope.fallback", run.fallback)


async def _with_retries(run: Run, attempt: object) -> None:
    """Try again while attempts come back unusable; the last allowed one is taken as it is."""
    assert callable(attempt)
    retries = 0
    while True:
        await attempt(run)
        if retries >= run.world.switches.retries or not run.chance(run.fail_share):
            break
        retries += 1
        run.span.event("retry", {"stagescope.attempt": retries, "reason": "answer did not match its schema"})
    if retries:
        run.span.set("stagescope.retries", retries)


def _count(run: Run, tokens: Tokens, scale: float) -> int:
    return max(1, round(tokens.median * scale * run.lognormal(tokens.sigma)))


def _tail(run: Run, sigma: float) -> float:
    """Unexplained healthy spread: log-normal, and one run in a hundred much slower."""
    rng = run.request.rng
    spread = run.lognormal(sigma)
    return spread * (1 + min(6.0, rng.paretovariate(2.0) - 1)) if rng.random() < 0.01 else spread


async def _ask_model(run: Run) -> None:
    world, stage, request = run.world, run.stage, run.request
    engine = world.engine(run.host, stage)
    prompt, system = _prompt(run)
    output = request.output_tokens if stage.name == "llm_generate" and request.output_tokens else 0
    output = output or _count(run, stage.output, request.output_scale if stage.kind == "generate" else 1.0)
    preempt = _preemptions(run, output)
    if run.overlong:
        prompt = engine.options.max_model_len + int(4_000 * run.lognormal(0.3))
    _say_model(run, prompt, system, engine.options.model.name)
    if run.held_share:
        engine.held_share = run.held_share
        run.facts["kv_usage"] = run.held_share
    ask = Ask(prompt, output, stage.name, stage.system_tokens, run.effort * _tail(run, 0.05), preempt, run.hold_s)
    run.closing_s += engine.options.model.overhead_s * run.effort
    if run.batch_window_s or world.switches.batch == "static":
        policy = BatchPolicy(4, run.batch_window_s or 0.3)
        answer, waited = await world.batch(run.host, stage).generate(ask, policy)
        run.add("batch_wait_ms", waited * 1e3)
    else:
        answer = await engine.generate(ask)
    engine.held_share = 0.0
    _say_answer(run, answer, output)


def _prompt(run: Run) -> tuple[int, int]:
    """(all prompt tokens, tokens of them that are the same on every call)."""
    stage, request = run.stage, run.request
    repeated = stage.system_tokens + run.extra_tokens
    if stage.name == "tool_select":
        tools = len(run.world.switches.tools)
        if run.world.switches.tool_select == "prompt":
            repeated += POLICY_TOKENS + bloated_prompt(stage.name, True, tools)
        elif not run.extra_tokens:
            repeated += CATEGORY_TOKENS_PER_TOOL * tools
    own = _count(run, stage.input, request.input_scale) + (
        request.history_tokens if stage.name == "llm_generate" else 0
    )
    return min(repeated + own, run.world.switches.engines[run.pool].max_model_len - 2_048), repeated


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
    span.set("gen_ai.provider.name", "simulated")
    span.set("gen_ai.request.model", FALLBACK_MODEL if run.fallback and run.pool != "edge" else model)
    span.set("gen_ai.usage.input_tokens", prompt)
    span.set("stagescope.prompt.repeated_tokens", repeated)
    span.set("stagescope.simulated", True)
    span.set("stagescope.gpu", str(list(STAGES).index(run.stage.name) if run.pool != run.stage.pool else run.stage.gpu))
    if run.stage.name == "tool_select":
        span.set("stagescope.work.items", len(run.world.switches.tools))


def _say_answer(run: Run, answer: Answer, output: int) -> None:
    span = run.span
    span.set("gen_ai.usage.output_tokens", output)
    if answer.cached_tokens:
        span.set("gen_ai.usage.cache_read.input_tokens", answer.cached_tokens)
    span.set("gen_ai.response.time_to_first_chunk", round(answer.first_token_s, 4))
    span.set("stagescope.batch_size", answer.batch_size)
    run.add("queue_ms", answer.queue_s * 1e3)
    run.facts["kv_usage"] = round(max(answer.kv_usage, run.held_share), 4)
    if answer.preemptions:
        span.set("stagescope.preemptions", answer.preemptions)


async def _select_by_vector(run: Run) -> None:
    """Nearest neighbour among tool schemas embedded once; needs no GPU."""
    busy = 0.023 * run.effort * _tail(run, 0.12)
    run.span.set("stagescope.work.items", len(run.world.switches.tools))
    run.add("cpu_ms", busy * 800)
    run.closing_s += busy


async def _call_tool(run: Run) -> None:
    tool, span, world = TOOLS_BY_NAME[run.tool], run.span, run.world
    rows = _count(run, Tokens(tool.rows, 0.4), 1.0) if tool.rows else 0
    size = _count(run, Tokens(tool.bytes, 0.4), 1.0)
    span.set("gen_ai.operation.name", "execute_tool")
    span.set("gen_ai.tool.name", tool.name)
    span.set("peer.service", f"{tool.name}-backend")
    pace = world.scenario.traffic.slow_tools.get(tool.name, 1.0)
    own = (tool.base_s * pace + tool.row_s * rows + tool.kb_s * size / 1e3) * run.effort * _tail(run, tool.sigma * 0.5)
    poll = run.request.rng.expovariate(1 / world.scenario.traffic.poll_s) if world.scenario.traffic.poll_s else 0.0
    if poll:
        run.add("wait_ms", poll * 1e3)
    limit = world.switches.tool_timeout_s
    if run.hang or own + poll + run.dependency_s > limit:
        await asyncio.sleep(limit)
        raise TimeoutError(f"Tool execution exceeded {limit:g}s")
    await asyncio.sleep(own + poll + run.dependency_s)
    run.dependency_s = 0.0
    if rows:
        span.set("stagescope.work.rows", rows)
    run.payload_bytes += size - 22_000 if run.payload_bytes < 1e6 else 0
    run.payload_bytes = max(64, run.payload_bytes)


async def _hand_over(run: Run) -> None:
    """Encode the answer, and write the session's state; both can fail."""
    busy = SERIALISE_S_PER_MB * run.payload_bytes / 1e6 * run.lognormal(0.08)
    run.span.set("stagescope.work.bytes", run.payload_bytes)
    run.add("serialise_ms", busy * 1e3)
    await asyncio.sleep(busy + run.closing_s + run.dependency_s)
    encode(f"{run.stage.name} of {run.request.number}" + ("\ud83d" if run.broken_text else ""))
    if run.conflict:
        await write_state(run)


def encode(text: str) -> bytes:
    """The answer as JSON in UTF-8. Raises UnicodeEncodeError for half a surrogate pair."""
    return _JSON.encode({"answer": text}).encode("utf-8")


async def write_state(run: Run) -> None:
    """Wait for the session's lock, held by another writer, until the lock timeout."""
    limit = run.world.switches.lock_timeout_s
    run.add("lock_wait_ms", limit * 1e3)
    run.add("lock_holders", 1)
    await asyncio.sleep(limit)
    raise StateConflictError(f"session {run.request.dims['session']} is held by another writer for over {limit:g} s")
