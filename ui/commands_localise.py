"""The command that asks which service makes a stretch of time slower than what came before it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from ingest.errors import BadSetting
from ingest.settings import Settings
from ingest.store import Store
from ui import text
from ui.command import DONE, Command, emit, json_option, reading, time_options, window

if TYPE_CHECKING:
    from analytics.findings import Window

BASELINE_TIMES = 24
SHOWN = 10
HOW = {"busy": "slow at its own work", "egress": "slow on its way out to others", "any": "slow in everything it does"}


def suspects_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        metavar="SPAN",
        help=f"healthy time: FROM/TO or the name of a baseline (default: {BASELINE_TIMES} times the span, right before it)",
    )
    time_options(parser)
    json_option(parser)


def suspects(args: Namespace, settings: Settings) -> int:
    """Services, the likeliest cause of the slowness first."""
    from analytics.localise_load import suspects as room

    with reading(settings) as store:
        span = window(args, store, "10m")
        before = _healthy(args.against, span, store)
        found = [each for each in room(store, span, before) if each.score > 0]
    if args.json:
        return emit([asdict(each) for each in found])
    print(
        f"{text.moment(span.start)} to {text.moment(span.end)}, against {text.moment(before.start)} to {text.moment(before.end)}"
    )
    if not found:
        print("no service is slower than it was (or there is no traffic on one of the two sides)")
        return DONE
    rows = [
        [
            each.service,
            f"{each.score:.1f}",
            HOW.get(each.how, each.how),
            text.ms(1000 * each.excess_s),
            text.percent(each.share),
        ]
        for each in found[:SHOWN]
    ]
    text.table(text.columns("service", ">score", "how", ">excess", ">of all excess"), rows)
    return DONE


def _healthy(against: str | None, span: Window, store: Store) -> Window:
    from analytics import baselines, run
    from analytics.findings import Window

    if against is None:
        length: timedelta = span.end - span.start
        return Window(span.start - BASELINE_TIMES * length, span.start)
    start, slash, end = against.partition("/")
    if slash and start and end:
        return run.between(start, end)
    if slash or not against:
        raise BadSetting("--against", against, "a span such as 2026-11-23/2026-11-24, or the name of a baseline")
    return baselines.get(store, against).window


COMMANDS = (
    Command(
        "suspects",
        "which service makes this span slower than before: services ranked by how well a fault in each explains it",
        "stagescope suspects --from 2026-11-30T14:02 --to 2026-11-30T14:12\nstagescope suspects --last 10m --against before-rollout --json",
        suspects_options,
        suspects,
    ),
)
