"""Commands on messages that could not be stored: dead-letters list, dead-letters replay."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ingest.settings import Settings
from ui import text
from ui.command import DONE, REJECTED, Command, emit, json_option, reading, writing
from ui.commands_data import kafka_sink


def letters_options(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", default="", help="only letters with this reason")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="at most N letters (default 100)")
    parser.add_argument("--replayed", action="store_true", help="also those that were sent again")
    json_option(parser)


def letters_list(args: Namespace, settings: Settings) -> int:
    """Print what could not be stored, latest first."""
    from ingest import dead_letters

    with reading(settings) as store:
        frame = dead_letters.listing(store, args.reason, args.limit, replayed=args.replayed)
    if args.json:
        return emit(frame.to_dict("records"))
    if not len(frame):
        print("no dead letters" + (f" with reason {args.reason!r}" if args.reason else ""))
        return DONE
    rows = [
        [
            text.moment(row["ReceivedAt"]),
            row["Topic"],
            row["Partition"],
            row["Offset"],
            row["Reason"],
            text.size(row["Bytes"]),
            row["Detail"],
        ]
        for row in frame.to_dict("records")
    ]
    text.table(text.columns("received", "topic", ">part", ">offset", "reason", ">size", "detail"), rows)
    return DONE


def replay_options(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", default="", help="only letters with this reason")
    parser.add_argument("--limit", type=int, default=1_000_000, metavar="N", help="at most N letters")


def letters_replay(args: Namespace, settings: Settings) -> int:
    """Send dead letters into the log again."""
    from ingest import dead_letters
    from ingest.meter import Meter
    from ingest.pipeline import start_embedded
    from ingest.receiver import options

    with writing(settings) as store:
        if settings.log == "memory:":
            embedded = start_embedded(store, Meter(), options(settings))
            try:
                done = dead_letters.replay(store, embedded.sink, args.reason, args.limit)
            finally:
                embedded.stop()
        else:
            with kafka_sink(settings, "dead-letters replay") as sink:
                done = dead_letters.replay(store, sink, args.reason, args.limit)
    print(f"{done.sent:,} sent again, {done.refused:,} refused; what fails again is a new dead letter")
    return REJECTED if done.refused else DONE


COMMANDS = (
    Command(
        "dead-letters list",
        "messages that could not be stored, and why",
        "stagescope dead-letters list --reason malformed",
        letters_options,
        letters_list,
    ),
    Command(
        "dead-letters replay",
        "send dead letters into the log again, once the cause is mended",
        "stagescope dead-letters replay --reason store-refused",
        replay_options,
        letters_replay,
    ),
)
