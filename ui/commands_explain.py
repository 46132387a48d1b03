"""Commands that set two things against each other: explain, compare. And doctor, which sets everything against what it should be."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ingest.errors import BadSetting
from ingest.settings import Settings
from ui import text
from ui.command import DONE, FAILED, Command, duration_s, emit, json_option, reading, time_options, window

if TYPE_CHECKING:
    from analytics.compare import Comparison, Side
    from analytics.findings import Window
    from analytics.stats import Estimate
    from ingest.store import Store


def explain_options(parser: ArgumentParser) -> None:
    parser.add_argument("--stage", metavar="S", help="runs of this stage (default: whole requests)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--slower-than", metavar="DURATION", help="what counts as slow, such as 2s (default: slower than p95)"
    )
    which.add_argument("--failed", action="store_true", help="set the failed ones apart instead of the slow ones")
    parser.add_argument(
        "--top", type=int, default=15, metavar="N", help="print at most N values (default 15; --json prints all)"
    )
    time_options(parser)
    json_option(parser)


def explain(args: Namespace, settings: Settings) -> int:
    """Which values set the slow (or failed) ones apart."""
    from analytics import explain as room

    limit_ms = duration_s(args.slower_than, "--slower-than") * 1000 if args.slower_than else None
    with reading(settings) as store:
        span = window(args, store, "7d")
        frame = room.explain(store, args.stage, limit_ms, args.failed, span)
    if args.json:
        return emit(frame.to_dict("records"))
    hits = "failed" if args.failed else f"slower than {text.ms(frame.attrs.get('slower_than_ms'))}"
    print(f"window {text.moment(span.start)} to {text.moment(span.end)}: {args.stage or 'whole requests'}, {hits}")
    told = frame[frame["significant"].astype(bool)] if len(frame) else frame
    if not len(told):
        print("no value sets them apart more than chance would")
        return DONE
    rows = [
        [
            row["dimension"],
            row["value"],
            text.count(row["runs"]),
            text.percent(row["rate"]),
            text.percent(row["rest_rate"]),
            f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})",
            text.percent(row["share_of_hits"]),
            "thin" if row["thin"] else "",
        ]
        for row in told.head(args.top).to_dict("records")
    ]
    text.table(
        text.columns("dimension", "value", ">runs", ">rate here", ">elsewhere", ">times as often", ">of all hits", ""),
        rows,
    )
    print(
        f"{len(told)} of {len(frame)} values looked at differ surely (95 % intervals, chance allowed for over all of them)"
    )
    return DONE


def compare_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "a",
        metavar="A",
        help="before: a span FROM/TO, dimension=value such as version=1.4.0, an attribute=value, or the name of a baseline",
    )
    parser.add_argument("b", metavar="B", help="after: likewise")
    parser.add_argument("--stage", metavar="S", help="runs of this stage (default: whole requests)")
    time_options(parser)
    json_option(parser)


def compare(args: Namespace, settings: Settings) -> int:
    """B against A, matched on dimensions and declared work."""
    from analytics import compare as room

    with reading(settings) as store:
        span = window(args, store, "7d")
        found = room.compare(store, _side(args.a, span, store), _side(args.b, span, store), args.stage)
    if args.json:
        return emit(asdict(found))
    print(f"{found.verdict}: {found.reason}")
    _print_quantiles(found)
    print(
        f"runs {found.runs[0]:,} and {found.runs[1]:,}, of which {found.matched[0]:,} and {found.matched[1]:,} have a match in work and dimensions"
    )
    return DONE


def _side(words: str, span: Window, store: Store) -> Side:
    from analytics import baselines, run
    from analytics.compare import Side

    name, equals, value = words.partition("=")
    if equals and name and value:
        return Side(span, {name: value})
    start, slash, end = words.partition("/")
    if slash and start and end:
        return Side(run.between(start, end))
    if equals or slash or not words:
        raise BadSetting("A B", words, "a span such as 2026-11-23/2026-11-24, or dimension=value such as version=1.4.0")
    kept = baselines.get(store, words)
    return Side(kept.window, {"version": kept.version} if kept.version else {})


def _print_quantiles(found: Comparison) -> None:
    if not found.a:
        return
    rows = [
        [name.removesuffix("_ms"), text.ms(found.a[name]), text.ms(found.b[name]), _interval(found.change[name])]
        for name in found.a
    ]
    text.table(text.columns("", ">A", ">B", "B − A"), rows)


def _interval(change: Estimate) -> str:
    return f"{text.ms(change.value)} ({text.ms(change.low)} to {text.ms(change.high)})"


def doctor(args: Namespace, settings: Settings) -> int:
    """Look at every place the product depends on."""
    from ingest import doctor as room

    found = room.examine(settings)
    wrong = any(item.state == room.WRONG for item in found)
    if args.json:
        emit([asdict(item) for item in found])
        return FAILED if wrong else DONE
    for item in found:
        print(f"{_MARKS[item.state]} {item.check:<14} {text.printable(item.found)}")
        if item.mend:
            print(f"  {'':<14} → {text.printable(item.mend)}")
    return FAILED if wrong else DONE


_MARKS: dict[str, Any] = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}

COMMANDS = (
    Command(
        "explain",
        "which values of dimensions and attributes set the slow (or failed) ones apart, and by how much",
        "stagescope explain --stage data_fetch --slower-than 2s\nstagescope explain --failed --last 24h",
        explain_options,
        explain,
    ),
    Command(
        "compare",
        "two spans, versions, arms or baselines, matched on work and dimensions: better, worse, no difference, not enough data",
        "stagescope compare version=1.4.0 version=1.4.1 --stage tool_select\nstagescope compare before-rollout 2026-11-30/2026-12-01",
        compare_options,
        compare,
    ),
    Command(
        "doctor",
        "check settings, store, log, Elasticsearch, exporters and clock; say what is wrong and how to mend it",
        "stagescope doctor --store ./my-data",
        json_option,
        doctor,
    ),
)
