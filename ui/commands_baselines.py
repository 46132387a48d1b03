"""Commands about what was: baselines to compare with, and the moments at which stages changed for good."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ingest.settings import Settings
from ui import text
from ui.command import DONE, Command, emit, json_option, reading, time_options, window, writing


def save_options(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="what to call it; an old one of this name is replaced")
    parser.add_argument("--version", default="", metavar="V", help="only runs of this version (default: all)")
    parser.add_argument("--note", default="", metavar="TEXT", help="a word for those who come later")
    time_options(parser)
    json_option(parser)


def save(args: Namespace, settings: Settings) -> int:
    """Keep a span of time under a name."""
    from analytics import baselines

    with writing(settings) as store:
        span = window(args, store, "24h")
        kept = baselines.save(store, baselines.Baseline(args.name, span, args.version, args.note))
    if args.json:
        return emit(kept.to_json())
    print(f"saved {kept.name}: {text.moment(span.start)} to {text.moment(span.end)}")
    return DONE


def listing(args: Namespace, settings: Settings) -> int:
    """All baselines."""
    from analytics import baselines

    with reading(settings) as store:
        found = baselines.listing(store)
    if args.json:
        return emit([item.to_json() for item in found])
    if not found:
        print("no baseline is saved: stagescope baseline save NAME --last 24h")
        return DONE
    rows = [
        [
            item.name,
            text.moment(item.window.start),
            text.moment(item.window.end),
            item.version,
            text.printable(item.note),
        ]
        for item in found
    ]
    text.table(text.columns("name", "from", "to", "version", "note"), rows)
    return DONE


def delete_options(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the baseline to forget")
    json_option(parser)


def delete(args: Namespace, settings: Settings) -> int:
    """Forget one baseline; the runs in it stay."""
    from analytics import baselines

    with writing(settings) as store:
        gone = baselines.delete(store, args.name)
    if args.json:
        return emit(gone.to_json())
    print(f"deleted {gone.name}")
    return DONE


def changes_options(parser: ArgumentParser) -> None:
    parser.add_argument("--stage", metavar="S", help="this stage only (default: every stage, and whole requests)")
    time_options(parser)
    json_option(parser)


def changes(args: Namespace, settings: Settings) -> int:
    """When stages changed for good."""
    from analytics import changes as room

    with reading(settings) as store:
        span = window(args, store, "24h")
        found = room.changes(store, span, args.stage)
    if args.json:
        return emit([item.to_json() for item in found])
    print(f"window {text.moment(span.start)} to {text.moment(span.end)}, in steps of {room.bin_seconds(span):,} s")
    if not found:
        print("nothing changed for good")
        return DONE
    rows = [
        [
            text.moment(item.at),
            item.service,
            item.stage or "(whole requests)",
            item.measure.removesuffix("_ms").replace("_", " "),
            *(text.percent(v) if item.measure == "error_rate" else text.ms(v) for v in (item.before, item.after)),
        ]
        for item in sorted(found, key=lambda item: item.at)
    ]
    text.table(text.columns("since", "service", "stage", "what", ">before", ">after"), rows)
    return DONE


COMMANDS = (
    Command(
        "changes",
        "when stages changed for good: p50, p99 and error rate over time, chance allowed for over all of them",
        "stagescope changes --last 24h\nstagescope changes --stage tool_select --last 7d --json",
        changes_options,
        changes,
    ),
    Command(
        "baseline save",
        "keep a span of time (and a version) under a name, to compare with later",
        "stagescope baseline save before-rollout --from 2026-11-23 --to 2026-11-24 --version 1.4.0",
        save_options,
        save,
    ),
    Command("baseline list", "the saved baselines", "stagescope baseline list --json", json_option, listing),
    Command(
        "baseline delete", "forget a baseline", "stagescope baseline delete before-rollout", delete_options, delete
    ),
)
