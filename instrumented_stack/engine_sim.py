"""A simulated inference engine: continuous batching with chunked prefill over a paged KV cache, timed by the roofline of a named GPU.
Simulated, and says so wherever it shows: `simulated` is True. Never more blocks in use than the cache has."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from instrumented_stack.engine import Answer, Ask, EngineOptions
from instrumented_stack.errors import ResourceExhausted
from instrumented_stack.hardware import prefill_s, step_s

_EPSILON = 1e-9


@dataclass(slots=True)
class Sequence:
    """One generation inside the engine. `left` counts effective tokens: real ones times effort; `fresh` prompt tokens must be computed."""

    ask: Ask
    arrived_s: float
    done: asyncio.Future[None]
    cached: int = 0
    fresh: float = 0.0
    left: float = 0.0
    queue_s: float = 0.0
    waiting_since_s: float = 0.0
    first_s: float = 0.0
    preempt: list[int] = field(default_factory=list)
    preemptions: int = 0
    batch: int = 1
    kv_usage: float = 0.0

    @property
    def generated(self) -> float:
        return self.ask.output_tokens - self.left / self.ask.effort

    @property
    def tokens(self) -> float:
        return self.ask.input_tokens + self.generated


@dataclass(slots=True)
class Counters:
    """Totals since start, as vLLM's /metrics gives them; `busy_s` = time with anything running, `prefill_s` of it spent in prefill."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    busy_s: float = 0.0
    prefill_s: float = 0.0
    flops: float = 0.0
    read_bytes: float = 0.0


class Engine:
    """One model on one GPU. Between two events (arrival, prefill done, sequence done, cache full) all rates are constant, so
    nothing ticks per token. Prompts that fit into one step's budget (`chunk_tokens`) are read together and end together; what
    arrives meanwhile waits for the next step, as vLLM's scheduler has it."""

    simulated = True

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.counters = Counters()
        self.waiting: deque[Sequence] = deque()
        self.prefilling: deque[Sequence] = deque()
        self.decoding: list[Sequence] = []
        self.held_share = 0.0
        self._prefixes: OrderedDict[str, int] = OrderedDict()
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.kv_blocks = options.kv_blocks
        self._chunk_s = prefill_s(options.gpu, options.model, options.chunk_tokens)
        self._group = 0
        self._group_left_s = self._cycle_s = 0.0

    async def generate(self, ask: Ask) -> Answer:
        """Wait for the whole answer. Raises ResourceExhausted when the request can never fit."""
        sequence = self.submit(ask)
        await sequence.done
        loop = asyncio.get_running_loop()
        total = loop.time() - sequence.arrived_s
        return Answer(
            queue_s=sequence.queue_s,
            first_token_s=sequence.first_s - sequence.arrived_s,
            total_s=total,
            cached_tokens=sequence.cached,
            batch_size=sequence.batch,
            preemptions=sequence.preemptions,
            kv_usage=min(1.0, sequence.kv_usage),
        )

    def submit(self, ask: Ask) -> Sequence:
        """Queue a generation; `sequence.generated` can be watched while it runs, `sequence.done` resolves at its end."""
        self._check(ask)
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._advance(now)
        sequence = Sequence(ask, now, loop.create_future(), waiting_since_s=now, left=ask.output_tokens * ask.effort)
        sequence.preempt = sorted(ask.preempt_at, reverse=True)
        self.waiting.append(sequence)
        self._step(now)
        return sequence

    def look(self) -> None:
        """Bring all sequences up to this instant, for whoever streams them."""
        self._advance(asyncio.get_running_loop().time())

    def _check(self, ask: Ask) -> None:
        need = self._blocks(ask.input_tokens + ask.output_tokens)
        if ask.input_tokens + ask.output_tokens > self.options.max_model_len or need > self.kv_blocks:
            raise ResourceExhausted("GPU memory allocation failed")

    def _blocks(self, tokens: float) -> int:
        return math.ceil(tokens / self.options.block_tokens)

    def usage(self) -> float:
        """Share of KV blocks in use, 0..1; blocks held by others on the same card count."""
        running = (*self.prefilling, *self.decoding)
        used = sum(self._blocks(item.tokens) for item in running)
        return min(1.0, max(used / self.kv_blocks, self.held_share))

    def rates(self) -> tuple[float, float]:
        """(prefill seconds done per second, decode tokens per second and sequence) as things stand."""
        count = len(self.decoding)
        step = self.options.gpu.host_step_s
        if count:
            cached = sum(item.tokens for item in self.decoding)
            step = step_s(self.options.gpu, self.options.model, count, cached)
        if self.prefilling:
            cycle = step + self._cycle_s
            return self._cycle_s / cycle, (1.0 / cycle if count else 0.0)
        return 0.0, (1.0 / step if count else 0.0)

    def _advance(self, now: float) -> None:
        elapsed = now - self._last_s
        self._last_s = now
        if elapsed <= 0 or not (self.prefilling or self.decoding):
            return
        prefill_rate, decode_rate = self.rates()
        totals = self.counters
        totals.busy_s += elapsed
        if self.prefilling:
            self._group_left_s -= elapsed * prefill_rate
            totals.prefill_s += elapsed * prefill_rate
        tokens = elapsed * decode_rate
        for item in self.decoding:
            item.left -= tokens
        totals.flops += 2 * self.options.model.parameters * tokens * len(self.decoding)
        totals.read_bytes += tokens * self.options.model.weight_bytes

    def _step(self, now: float) -> None:
        """Finish, preempt, admit, gather what is read next, then set the timer for the next thing that changes a rate."""
        self._finish(now)
        self._make_room(now)
        self._admit(now)
        self._gather()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self._next_s()
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_at(now + wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._advance(now)
        self._step(now)

    def _next_s(self) -> float | None:
        prefill_rate, decode_rate = self.rates()
        waits = []
        if self.prefilling:
            waits.append(self._group_left_s / prefill_rate)
        if decode_rate > 0:
            first = min(self._until_stop(item) for item in self.decoding)
            waits.append(first / decode_rate)
            free = self.kv_blocks - sum(self._blocks(item.tokens) for item in self.decoding)
            growth = sum(1 / item.ask.effort for item in self.decoding) * decode_rate / self.options.block_tokens
            waits.append(max(1.0, free + 1.0) / growth)
        return max(1e-6, min(waits)) if waits else None

    @staticmethod
    def _until_stop(item: Sequence) -> float:
        """Effective tokens until this sequence ends or is preempted."""
        if item.preempt:
            return min(item.left, (item.preempt[-1] - item.generated) * item.ask.effort)
        return item.left

    def _finish(self, now: float) -> None:
        while self._group and self._group_left_s <= _EPSILON:
            self._group -= 1
            item = self.prefilling.popleft()
            item.first_s = item.first_s or now
            self.decoding.append(item)
        ended = [item for item in self.decoding if item.left <= 1e-6]
        if ended or any(item.preempt for item in self.decoding):
            stopped = [item for item in self.decoding if item.preempt and self._until_stop(item) <= 1e-6]
            for item in ended:
                self._observe(item)
                self.counters.generation_tokens += item.ask.output_tokens
                if not item.done.done():
                    item.done.set_result(None)
            self.decoding = [item for item in self.decoding if item.left > 1e-6 and item not in stopped]
            for item in stopped:
                if item.left > 1e-6:
                    item.preempt.pop()
                    self._preempt(item, now, item.ask.hold_s)

    def _make_room(self, now: float) -> None:
        """Evict the youngest while the running sequences need more blocks than there are."""
        while len(self.decoding) > 1 and self._used() > self.kv_blocks:
            self._preempt(self.decoding.pop(), now, 0.0)

    def _used(self) -> int:
        return sum(self._blocks(item.tokens) for item in (*self.prefilling, *self.decoding))

    def _preempt(self, item: Sequence, now: float, hold_s: float) -> None:
        self._observe(item)
        item.preemptions += 1
        self.counters.preemptions += 1
        item.waiting_since_s = now
        if hold_s > 0:
            asyncio.get_running_loop().call_later(hold_s, self._return, item)
        else:
            self.waiting.appendleft(item)

    def _return(self, item: Sequence) -> None:
        now = asyncio.get_running_loop().time()
        self._advance(now)
        self.waiting.appendleft(item)
        self._step(now)

    def _observe(self, item: Sequence) -> None:
        item.kv_usage = max(item.kv_usage, self.usage())
        item.batch = max(item.batch, len(self.decoding))

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.prefilling) + len(self.decoding) < self.options.max_num_seqs:
            item = self.waiting[0]
            if self._used() + self._blocks(item.tokens + 1) > self.kv_blocks:
                return
            self.waiting.popleft()
            item.queue_s += now - item.waiting_since_s
            item.fresh = self._uncached(item)
            self.prefilling.append(item)
            self._observe(item)

    def _gather(self) -> None:
        """Begin to read the prompts at the front: as many as fit into one step, at least one (in several steps if need be)."""
        if self._group or not self.prefilling:
            return
        prompts: list[float] = []
        tokens = effort = 0.0
        for item in self.prefilling:
            if prompts and tokens + item.fresh > self.options.chunk_tokens:
                break
            prompts.append(item.fresh)
            tokens += item.fresh
            effort += item.fresh * item.ask.effort
        self._group = len(prompts)
        self._group_left_s = prefill_s(self.options.gpu, self.options.model, *prompts) * effort / tokens
        self._cycle_s = min(self._chunk_s, self._group_left_s)

    def _uncached(self, item: Sequence) -> float:
        """Prompt tokens that must be computed now; whole cached blocks of the shared prefix are not."""
        ask, totals = item.ask, self.counters
        if item.preemptions:
            return item.tokens
        totals.prompt_tokens += ask.input_tokens
        totals.prefix_queries += ask.input_tokens
        totals.flops += 2 * self.options.model.parameters * ask.input_tokens
        if self.options.prefix_caching and ask.prefix:
            size = self.options.block_tokens
            item.cached = min(self._prefixes.get(ask.prefix, 0), ask.prefix_tokens) // size * size
            totals.prefix_hits += item.cached
            self._prefixes[ask.prefix] = max(ask.prefix_tokens, self._prefixes.get(ask.prefix, 0))
            self._prefixes.move_to_end(ask.prefix)
            if len(self._prefixes) > 512:
                self._prefixes.popitem(last=False)
        return max(1.0, ask.input_tokens - item.cached)
