"""`stagescope demo --vllm FOLDER`: the instrumented agent on three real vLLM servers, first with every tool's schema in the prompt, then
with a vector look-up; what the servers' spans and pages say, what is found, and how much faster the second way is.

Must stay true: it ends by itself, and no server outlives it, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx

from analytics import engines, run, stages
from analytics.findings import Window
from analytics.traces import waterfall
from ingest import mapping
from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings
from ui import demo, text
from ui.command import DONE
from ui.commands_find import print_findings
from ui.commands_look import print_trace
from ui.pages_server import must_be_free
from ui.up import Node, node, until_told_to_stop

DEPLOY = Path(__file__).resolve().parents[1] / "deploy" / "vllm-cpu"
PATIENCE_S = 420.0
SCRAPE_S = 5.0
SETTLE_S = 8.0
STOP_S = 20.0
WANTED = {"calculation": "calculator", "conversion": "convert_units"}
LONG = ("--max-model-len", "8192", "--kv-cache-memory-bytes", "512M")


@dataclass(frozen=True, slots=True)
class Tier:
    """One server: its name, port, model folder, the name it serves the model under, which half of the cores it gets, and more words
    for vLLM."""

    name: str
    port: int
    model: str
    served: str
    half: int
    words: tuple[str, ...] = LONG


# Without its cache of prefixes the edge server reads every prompt in full, as many do whose prompts begin with something that varies.
TIERS = (
    Tier("edge", 8101, "model-edge", "SmolLM2-6-of-30-layers", 0, (*LONG, "--no-enable-prefix-caching")),
    Tier("middle", 8102, "model-middle", "SmolLM2-12-of-30-layers", 1),
    Tier("core", 8103, "model", "SmolLM2-135M", 1),
)


def run_demo(settings: Settings, folder: Path, seconds: float | None) -> int:
    """The whole story; `seconds` of traffic with prompts instead of the scenario's (a third of it with vectors)."""
    _check(settings, folder)
    began = time.monotonic()
    demo.prepare(settings, keep=False)
    scraped = ",".join(f"http://127.0.0.1:{tier.port}/metrics" for tier in TIERS)
    settings = replace(settings, scrape=scraped, scrape_seconds=SCRAPE_S)
    with until_told_to_stop() as stop, ExitStack() as stack:
        running = stack.enter_context(node(settings, pages=False, watch=None))
        story = demo.Story(running, stop, began)
        story.tell(f"up: OTLP on {running.otlp_http} and {running.otlp_grpc}; three vLLM servers are starting …")
        servers = {tier: stack.enter_context(_server(tier, folder, running)) for tier in TIERS}
        _wait_ready(story, servers)
        story.tell(f"vLLM answers on {', '.join(f'{tier.name} {tier.port}' for tier in TIERS)}")
        first = _traffic(story, running, "demo-prompt", seconds)
        second = _traffic(story, running, "demo-vector", seconds / 3 if seconds else None)
        if not stop.is_set():
            settled = time.monotonic() + SETTLE_S
            story.until(lambda: time.monotonic() > settled)
            story.tell("looking at everything …")
            _report(running, settings, first, second)
            story.tell("done")
    return DONE


def _check(settings: Settings, folder: Path) -> None:
    for place in (folder / "bin" / "python", *(folder / tier.model / "config.json" for tier in TIERS)):
        if not place.exists():
            raise BadSetting("--vllm", folder, f"a folder that deploy/vllm-cpu/install.sh made ({place} is not there)")
    if not DEPLOY.is_dir():
        raise BadSetting("--vllm", folder, f"a checkout of the repository: {DEPLOY} is not there")
    for tier in TIERS:
        must_be_free(settings.host, tier.port, f"the {tier.name} server")


@contextmanager
def _server(tier: Tier, folder: Path, running: Node) -> Iterator[subprocess.Popen[bytes]]:
    """A vLLM server on a leash: it ends when its standard input closes."""
    words = (tier.name, str(tier.port), _cores(tier.half), str(folder), *tier.words)
    more = {
        "VLLM_MODEL_FOLDER": tier.model,
        "VLLM_MODEL_NAME": tier.served,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"grpc://{running.otlp_grpc}",
    }
    with (running.folder / f"vllm-{tier.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "instrumented_stack.engine_server", *words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **more},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _cores(half: int) -> str:
    """Half of the cores: servers that share cores wait at each other's barriers, which costs more than the cores gain."""
    count = os.cpu_count() or 1
    middle = max(1, count // 2)
    first, last = (0, middle - 1) if half == 0 or count == 1 else (middle, count - 1)
    return str(first) if first == last else f"{first}-{last}"


def _wait_ready(story: demo.Story, servers: Mapping[Tier, subprocess.Popen[bytes]]) -> None:
    """Until all servers answer. Raises StagescopeError when one ended, or none of that came in time."""
    until = time.monotonic() + PATIENCE_S
    left = list(servers)

    def looked() -> bool:
        for tier in list(left):
            with suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{tier.port}/health", timeout=5.0, trust_env=False).is_success:
                    left.remove(tier)
        return not left or time.monotonic() > until or any(servers[tier].poll() is not None for tier in left)

    story.until(looked)
    if left and not story.stopped:
        logs = ", ".join(f"vllm-{tier.name}.log" for tier in left)
        raise StagescopeError(f"vLLM does not answer; the reason stands in the data folder, in {logs}")


def _traffic(story: demo.Story, running: Node, name: str, seconds: float | None) -> Window:
    """Live traffic of one scenario to its end; the window in which it ran. Raises StagescopeError when the stack failed."""
    story.tell(f"live traffic: {name}")
    start = datetime.now(UTC)
    more = ("--seconds", f"{seconds:g}") if seconds else ()
    with demo.stack_of(running, str(DEPLOY / f"{name}.toml"), "live", *more) as process:
        story.until(lambda: process.poll() is not None)
    if process.returncode and not story.stopped:
        raise StagescopeError(f"the stack ended with {process.returncode}; the reason stands above")
    return Window(start, datetime.now(UTC))


def _report(running: Node, settings: Settings, first: Window, second: Window) -> None:
    """What the servers said, what is found while prompts held every schema, and both ways side by side."""
    store, whole = running.store, Window(first.start, datetime.now(UTC))
    stages.build_touched(store, mapping.load(settings.stages or None))
    demo.head("Servers, by their own spans")
    served = engines.served(store, whole)
    _table(served)
    demo.head("Engines, by their /metrics pages")
    _table(engines.pages(store, whole))
    found = run.run(store, first)
    demo.head(f"Findings with every schema in the prompt ({len(found)})")
    print_findings(found)
    slow = next((item for item in found if item.subject.get("stage") == "tool_select" and item.trace_ids), None)
    if slow:
        demo.head("One trace of it")
        print_trace(waterfall(store, slow.trace_ids[0]))
    demo.head("tool_select, both ways")
    prompt, vector = (engines.choices(store, window, "tool_select", WANTED) for window in (first, second))
    for way, seen in (("prompt", prompt), ("vector", vector)):
        told = f"{seen.runs:5} runs  p50 {text.ms(seen.p50_ms):>9}  p95 {text.ms(seen.p95_ms):>9}  {seen.input_tokens:6} tokens"
        print(f"{way:8}{told}  {seen.right_share:.0%} right")
    print("(the edge server has 6 of the model's 30 layers: its choices are guesses, its times are real)")


def _table(frame: object) -> None:
    print(frame.to_string(index=False, float_format=lambda value: f"{value:.1f}"))  # type: ignore[attr-defined]
