"""Commands that take one closer look: p99, trace."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ingest.settings import Settings
from ui import text
from ui.command import DONE, Command, emit, json_option, reading, time_options, window

if TYPE_CHECKING:
    import pandas as pd

BAR = 48
DEEPEST = 20  # levels that are indented; deeper ones are numbered, or a long chain would print lines as long as itself


def p99_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        required=True,
        metavar="DIM[,DIM…]",
        help="service stage tier model tool region device user_tier version host, or any attribute",
    )
    parser.add_argument("--stage", metavar="S", help="only runs of this stage")
    parser.add_argument(
        "--top", type=int, default=40, metavar="N", help="print at most N values (default 40; --json prints all)"
    )
    time_options(parser)
    json_option(parser)


def p99(args: Namespace, settings: Settings) -> int:
    """Percentiles per value of a dimension; errors are counted and kept out of them."""
    from analytics import dimensions

    names = args.by.split(",")
    with reading(settings) as store:
        span = window(args, store, "24h")
        frame = dimensions.p99(store, names, args.stage, span)
    if args.json:
        return emit(frame.to_dict("records"))
    print(
        f"window {text.moment(span.start)} to {text.moment(span.end)}" + (f", stage {args.stage}" if args.stage else "")
    )
    if not len(frame):
        print("nothing: no runs in this window" + (f" of stage {args.stage!r}" if args.stage else ""))
        return DONE
    keys = [name for name in frame.columns if name not in dimensions.NUMBERS]
    rows = [
        [*(row[key] for key in keys), text.count(row["count"]), text.count(row["errors"])]
        + [text.ms(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms")]
        + ["thin" if row["thin"] else ""]
        for row in frame.head(args.top).to_dict("records")
    ]
    text.table(
        text.columns(*keys, ">count", ">errors", ">p50", ">p95", ">p99", ">p999", ""),
        rows,
    )
    print(_below(frame, args.top, dimensions.THIN))
    return DONE


def _below(frame: pd.DataFrame, top: int, thin: int) -> str:
    told = [f"{len(frame):,} values" + (f", the first {top} shown" if len(frame) > top else "")]
    told.append("errors are counted and kept out of the percentiles")
    if frame["thin"].any():
        told.append(f"thin: fewer than {thin} good runs, do not trust the tail")
    return "; ".join(told)


def trace_options(parser: ArgumentParser) -> None:
    parser.add_argument("trace_id", metavar="TRACE_ID", help="32 hexadecimal digits")
    json_option(parser)


def trace(args: Namespace, settings: Settings) -> int:
    """One trace as a waterfall."""
    from analytics import traces

    with reading(settings) as store:
        frame = traces.waterfall(store, args.trace_id)
    if args.json:
        return emit({"trace_id": args.trace_id, "runs": frame.to_dict("records")})
    print_trace(frame)
    return DONE


def print_trace(frame: pd.DataFrame) -> None:
    """The waterfall in a terminal: when, how long, own time, what the request waited for, what nothing explains."""
    whole = max(float(frame["end_ms"].max()), 0.001)
    rows = []
    for row in frame.to_dict("records"):
        told = [f"! {row['error_type'] or 'failed'}" if row["failed"] else "", row["tool"] or row["model"] or ""]
        rows.append(
            [
                _indent(int(row["depth"])) + str(row["stage"]),
                _bar(row, whole),
                text.ms(row["duration_ms"]),
                text.ms(row["self_ms"]),
                text.ms(row["critical_ms"]) if row["critical"] else "",
                text.ms(row["unjustified_ms"]) if row["unjustified_ms"] and row["unjustified_ms"] >= 0.5 else "",
                " ".join(part for part in told if part),
            ]
        )
    head = text.columns("stage", f"0 to {text.ms(whole)}", ">time", ">own", ">critical", ">no reason", "note")
    text.table(head, rows)
    print(
        "█ on the critical path  ▒ beside it  ╌ gap between client and server  ! failed; 'no reason' is what work, waiting and purpose do not explain"
    )


def _indent(depth: int) -> str:
    return "  " * depth if depth <= DEEPEST else "  " * DEEPEST + f"(+{depth - DEEPEST}) "


def _bar(row: Mapping[Hashable, Any], whole: float) -> str:
    start: int = int(row["start_ms"] / whole * BAR)
    size: int = max(1, round(row["duration_ms"] / whole * BAR))
    mark = "╌" if row["gap"] else "█" if row["critical"] else "▒"
    drawn = "·" * min(start, BAR - 1) + mark * size
    return drawn[:BAR].ljust(BAR, "·")


COMMANDS = (
    Command(
        "p99",
        "percentiles per value of a dimension or attribute, errors kept out",
        "stagescope p99 --by region,device --stage tool_select --last 1h",
        p99_options,
        p99,
    ),
    Command(
        "trace",
        "one trace as a waterfall: own time, gaps, critical path, time without reason",
        "stagescope trace 3e3a0ba7fd4f12b5cfc3da78bb5ba515",
        trace_options,
        trace,
    ),
)
