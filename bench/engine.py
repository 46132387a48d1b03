"""The simulated engine's latency curve beside a real vLLM server's: TTFT, TPOT and throughput at 1, 4 and 8 clients, simulated with
the roofline of the very machine.

Must stay true: the simulation knows only the calibration (bench/engine_fit.py), never the points it is compared with.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from bench.engine_fit import STEP_TOKENS, Calibration, calibrate, measure_machine, middle, options_of, roofline
from bench.engine_load import Point, RealServer, Shape, closed_loop, median_point, point, simulate
from instrumented_stack.engine_server import Server, ServerFailed, ServerPlan, missing, serving
from instrumented_stack.hardware import MODELS

T = TypeVar("T")
CLIENTS = (1, 4, 8)
OTHERS, TRIES = 0.1, 3
PROMPT, OUTPUT, ROUNDS = 134, 64, 1
FIGURES = ("ttft_s", "tpot_s", "tokens_per_s")
WORDS = ("--no-enable-prefix-caching", "--max-num-batched-tokens", str(STEP_TOKENS), "--kv-cache-memory-bytes", "512M")


@dataclass(slots=True)
class Quiet:
    """Does a piece of work again while others used the CPU: a decode step has some hundred barriers, and each waits for a core that was
    taken away. `server` None: somebody else's server, nothing is known."""

    server: Server | None
    discarded: int = 0

    async def get(self, work: Callable[[], Awaitable[T]]) -> T:
        """The first result during which others used less than OTHERS of a core, else the least disturbed of TRIES."""
        best: tuple[float, T] | None = None
        for _ in range(TRIES):
            before, began = self._others_s(), time.monotonic()
            result = await work()
            share = (self._others_s() - before) / (time.monotonic() - began)
            if best is None or share < best[0]:
                best = share, result
            if share < OTHERS:
                break
            self.discarded += 1
            note(f"others used {share:.2f} of a core: once more")
        assert best is not None
        return best[1]

    def _others_s(self) -> float:
        if self.server is None:
            return 0.0
        spent = psutil.cpu_times()
        busy = sum(getattr(spent, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
        return busy - self.server.cpu_s() - sum(psutil.Process().cpu_times()[:2])


Run = tuple[Calibration, list[Point]]


async def measure(url: str, options: argparse.Namespace, quiet: Quiet) -> list[Run]:
    """The runs, after those that `options.runs_file` holds already. Each has its own calibration just before, as machines drift."""
    done = _kept(options.runs_file)
    async with RealServer(url, options.served) as server:
        await closed_loop(server.ask, Shape(64, 8, 2))
        for number in range(options.runs):
            found = await quiet.get(lambda: calibrate(server))
            seen = []
            for clients in CLIENTS:
                shape = Shape(PROMPT, OUTPUT, clients, ROUNDS)
                timings = await quiet.get(lambda shape=shape: closed_loop(server.ask, shape))  # type: ignore[misc]
                seen.append(point(timings, clients))
            done.append((found, seen))
            note(f"run {number + 1} of {options.runs}: {found} {seen}")
            if options.runs_file:
                with options.runs_file.open("a") as file:
                    file.write(
                        json.dumps({"calibration": asdict(found), "points": [asdict(item) for item in seen]}) + "\n"
                    )
    return done


def _kept(path: Path | None) -> list[Run]:
    if path is None or not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        kept = json.loads(line)
        plain = kept["calibration"]
        steps = [{int(key): value for key, value in plain[name].items()} for name in ("prefill_s", "step_s")]
        found.append((Calibration(plain["host_s"], *steps), [Point(**item) for item in kept["points"]]))
    return found


def report(options: argparse.Namespace, url: str, quiet: Quiet) -> dict[str, Any]:
    """Everything measured and simulated, as one document."""
    machine = measure_machine(os.cpu_count() or 1)
    note(f"machine: {machine}")
    plain = MODELS[options.model]
    width = options.bytes_per_parameter
    kv_bytes = round(plain.kv_bytes_per_token * width / plain.bytes_per_parameter)
    plain = replace(plain, bytes_per_parameter=width, kv_bytes_per_token=kv_bytes)
    done = asyncio.run(measure(url, options, quiet))
    found = middle([calibration for calibration, _ in done])
    real = [median_point(list(points)) for points in zip(*(points for _, points in done), strict=True)]
    gpu, model = roofline(machine, found, plain)
    engine = options_of(gpu, model)
    simulated = [point(simulate(engine, Shape(PROMPT, OUTPUT, clients, ROUNDS)), clients) for clients in CLIENTS]
    off = [
        abs(getattr(there, name) / getattr(here, name) - 1)
        for here, there in zip(real, simulated, strict=True)
        for name in FIGURES
    ]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "prompt": PROMPT,
        "output": OUTPUT,
        "runs": len(done),
        "discarded": quiet.discarded,
        "measured": asdict(machine),
        "calibration": asdict(found),
        "roofline": {
            "compute_share": gpu.compute_share,
            "host_step_s": gpu.host_step_s,
            "host_sequence_s": gpu.host_sequence_s,
            "pack_s": gpu.pack_s,
            "overhead_s": model.overhead_s,
            "pair_flops": model.pair_flops,
        },
        "real": [asdict(item) for item in real],
        "simulated": [asdict(item) for item in simulated],
        "largest_difference": round(max(off), 3),
    }


def table(document: dict[str, Any]) -> str:
    """For people, and for docs/engines.md."""
    lines = ["| clients | figure | real | simulated | difference |", "|---|---|---|---|---|"]
    for real, simulated in zip(document["real"], document["simulated"], strict=True):
        for name, words, scale in (
            ("ttft_s", "TTFT ms", 1e3),
            ("tpot_s", "TPOT ms", 1e3),
            ("tokens_per_s", "tokens/s", 1),
        ):
            here, there = real[name] * scale, simulated[name] * scale
            lines.append(f"| {real['clients']} | {words} | {here:.1f} | {there:.1f} | {there / here - 1:+.0%} |")
    return "\n".join(lines)


def note(words: str) -> None:
    if sys.stderr.isatty():
        print(words, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with contextlib.ExitStack() as stack:
        try:
            url, server = options.url, None
            if not url:
                plan = ServerPlan("curve", options.port, options.cores, options.folder, WORDS, log=options.log)
                if why := missing(options.folder):
                    raise ServerFailed(why)
                server = stack.enter_context(serving(plan))
                url = plan.url
            document = report(options, url, Quiet(server))
        except (ServerFailed, httpx.HTTPError) as error:
            print(f"bench.engine: {error or type(error).__name__}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(document))
    else:
        print(table(document))
        for name in ("machine", "runs", "discarded", "measured", "calibration", "roofline", "largest_difference"):
            print(f"{name:20} {document[name]}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(".vllm"), help="what deploy/vllm-cpu/install.sh made")
    parser.add_argument("--url", help="a server that runs already, instead of starting one")
    parser.add_argument("--port", type=int, default=8190, help="where the server that is started listens")
    parser.add_argument("--cores", default=f"0-{(os.cpu_count() or 1) - 1}", help="cores of the server that is started")
    parser.add_argument("--served", default="smollm2", help="the name under which the server serves its model")
    parser.add_argument("--model", default="SmolLM2-135M", choices=sorted(MODELS), help="the model in hardware.py")
    parser.add_argument("--bytes-per-parameter", type=float, default=4.0, help="4 for float32, 2 for bfloat16")
    parser.add_argument("--runs", type=int, default=5, help="medians of so many runs")
    parser.add_argument(
        "--runs-file", type=Path, help="keep runs here, one JSON a line, and count those it holds already"
    )
    parser.add_argument("--log", type=Path, help="where the server may talk")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
