"""`python -m instrumented_stack run --scenario FILE --otlp URL_OR_PATH`: the stack from the command line."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from instrumented_stack.engine_choice import measure_prompt
from instrumented_stack.errors import AgentError, ScenarioError
from instrumented_stack.select import measure
from instrumented_stack.stack import Outcome, Overrides, run

SCENARIOS = Path(__file__).resolve().parent / "scenarios"
EXAMPLE = (
    "example:\n  python -m instrumented_stack run --scenario prompt_bloat --otlp http://127.0.0.1:4318 --speed max"
)


def positive(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def instant(text: str) -> datetime:
    """ISO 8601; UTC is meant without a zone."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-30T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def scenario_path(text: str) -> Path:
    """A file, or the name of one that comes with the package."""
    path = Path(text)
    shipped = SCENARIOS / f"{text}.toml"
    return shipped if not path.is_file() and shipped.is_file() else path


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="instrumented_stack",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True)
    go = commands.add_parser(
        "run", help="run a scenario", epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_run_options(go)
    commands.add_parser("scenarios", help="list the scenarios that come with the package")
    select = commands.add_parser("select", help="measure tool selection by prompt and by vector")
    select.add_argument("--url", help="a vLLM server that chooses by prompt, measured too")
    select.add_argument("--served", default="smollm2", help="the name under which that server serves its model")
    return top


def add_run_options(go: argparse.ArgumentParser) -> None:
    """The options of `run`; other front ends may add them to a parser of their own."""
    go.add_argument(
        "--scenario", required=True, type=scenario_path, help="a .toml file, or a shipped name such as prompt_bloat"
    )
    go.add_argument(
        "--otlp", required=True, help="http://host:4318, a folder (protobuf files), or a .jsonl file (OTLP JSON)"
    )
    go.add_argument("--rps", type=positive, help="requests per second, instead of the scenario's")
    go.add_argument(
        "--seconds", type=positive, help="length of the run; the scenario's times stretch or shrink with it"
    )
    go.add_argument(
        "--speed", choices=("live", "max"), default="max", help="live: real services in real time; max: virtual time"
    )
    go.add_argument("--seed", type=int, help="another seed gives other requests of the same kind")
    go.add_argument("--start", type=instant, help="when virtual time begins; default: so that it ends now")
    go.add_argument("--truth", type=Path, help="where truth.json goes; default: beside the output, none for a URL")


def start(options: argparse.Namespace) -> Outcome:
    """Run what the options say."""
    overrides = Overrides(options.rps, options.seconds, options.seed, options.start)
    show = progress_line if sys.stderr.isatty() else None
    return run(options.scenario, options.otlp, overrides, show, options.truth, options.speed)


def progress_line(share: float, requests: int) -> None:
    """Redraw one line on a terminal."""
    sys.stderr.write(f"\r{share:6.1%}  {requests:,} requests")
    sys.stderr.flush()


def choose(options: argparse.Namespace) -> int:
    """Print how each way of choosing does."""
    found = measure()
    if options.url:
        try:
            found.insert(1, measure_prompt(options.url, options.served))
        except AgentError as error:
            print(error, file=sys.stderr)
            return 1
    for item in found:
        right = "not measured" if item.right is None else f"{item.right:.1%} right"
        print(f"{item.way:8} {item.ms:8.2f} ms  {item.tokens:5} prompt tokens  {right:13}  ({item.note})")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done, 1 failed, 2 bad usage or scenario."""
    options = parser().parse_args(arguments)
    if options.command == "scenarios":
        print("\n".join(sorted(path.stem for path in SCENARIOS.glob("*.toml"))))
        return 0
    if options.command == "select":
        return choose(options)
    began = time.perf_counter()
    try:
        outcome = start(options)
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    except (ConnectionError, OSError) as error:
        print(f"cannot write telemetry: {error}", file=sys.stderr)
        return 1
    took = time.perf_counter() - began
    print(f"{outcome.requests:,} requests, {outcome.failed:,} failed, {outcome.spans:,} spans in {took:.1f} s")
    if outcome.pace is not None:
        print(outcome.pace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
