"""Commands that turn what was found into work: failures, roadmap, tickets sync."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.settings import Settings
from ui import text
from ui.command import DONE, FAILED, Command, emit, json_option, reading, time_options, window, writing

if TYPE_CHECKING:
    import pandas as pd

    from analytics.roadmap_owners import Owners
    from analytics.tickets import Change, Done

TRACKERS = ("files", "jira", "github", "gitlab", "webhook")
CLUSTER_KEYS = "cluster_id label count users first_seen last_seen trend scene examples".split()


def failures_options(parser: ArgumentParser) -> None:
    time_options(parser)
    json_option(parser)


def failures(args: Namespace, settings: Settings) -> int:
    """Print the failure clusters of a window, most requests first."""
    from analytics import failures as room

    with reading(settings) as store:
        span = window(args, store, "7d")
        frame = room.clusters(store, span)
    if args.json:
        return emit(frame.to_dict("records"))
    print(f"window {text.moment(span.start)} to {text.moment(span.end)}")
    if not len(frame):
        print("no failure clusters: nothing failed, or `stagescope analyze` has not looked yet")
        return DONE
    print_clusters(frame)
    return DONE


def print_clusters(frame: pd.DataFrame) -> None:
    """The cluster table: how many requests and users, since when, where it goes, and one trace to look at."""
    rows = [
        [
            row["cluster_id"],
            row["scene"],
            text.count(row["count"]),
            text.count(row["users"]),
            row["trend"],
            text.moment(row["first_seen"])[:16],
            text.moment(row["last_seen"])[:16],
            row["label"],
            next(iter(row["examples"]), ""),
        ]
        for row in frame.to_dict("records")
    ]
    head = text.columns(
        "cluster", "scene", ">requests", ">users", "trend", "first seen", "last seen", "what", "example"
    )
    text.table(head, rows)


def roadmap_options(parser: ArgumentParser) -> None:
    parser.add_argument("--week", metavar="YYYY-Www", help="ISO week such as 2026-W48 (default: this week)")
    parser.add_argument("--format", choices=("md", "html", "json"), default="md", help="default md")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="write there instead of on the screen")


def roadmap(args: Namespace, settings: Settings) -> int:
    """Print the weekly stability roadmap."""
    from analytics import roadmap as room

    with reading(settings) as store:
        found = room.render(room.build(store, args.week, owners=owners(settings)), args.format)
    if args.output:
        args.output.write_text(found, encoding="utf-8")
        print(f"written to {args.output}", file=sys.stderr)
    else:
        print(found)
    return DONE


def owners(settings: Settings) -> Owners:
    """Who mends what, from STAGESCOPE_OWNERS."""
    from analytics.roadmap_owners import NOBODY, load

    return load(Path(settings.owners)) if settings.owners else NOBODY


def tickets_options(parser: ArgumentParser) -> None:
    parser.add_argument("--to", choices=TRACKERS, default="files", help="the tracker (default files)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    json_option(parser)


def tickets_sync(args: Namespace, settings: Settings) -> int:
    """Bring the tracker in line with the findings."""
    with writing(settings) as store:
        done = sync(store, settings, args.to, dry_run=args.dry_run)
    if args.json:
        emit([_plain(item) for item in done])
    else:
        print_tickets(done, settings, files=args.to == "files", dry_run=args.dry_run)
    return FAILED if any(item.problem for item in done) else DONE


def sync(store: Any, settings: Settings, tracker: str, *, dry_run: bool = False) -> list[Done]:
    """Open, update, close and reopen tickets of all open findings at `tracker`."""
    from analytics import run, tickets
    from analytics.failures_impact import appendix
    from analytics.tickets_sinks import sink

    known = owners(settings)

    def owner(change: Change) -> str:
        return known.of(change.finding) if change.finding else ""

    place = sink(tracker, settings, tickets_folder(settings), (owner, lambda change: appendix(store, change.finding)))
    rules = tickets.Rules(verified_for=timedelta(hours=settings.ticket_verified_hours))
    findings = run.latest(store)
    return tickets.sync(store, place, findings, environment=settings.environment, rules=rules, dry_run=dry_run)


def tickets_folder(settings: Settings) -> Path:
    """Where ticket files go: the setting, else beside the embedded store, else ./tickets."""
    from ingest.store import locate

    if settings.tickets_folder:
        return Path(settings.tickets_folder)
    folder = locate(settings.store).folder
    return folder / "tickets" if folder else Path("tickets")


def print_tickets(done: Sequence[Done], settings: Settings, *, files: bool = True, dry_run: bool = False) -> None:
    """One line a change; `files` says where ticket files are."""
    if not done:
        print("tickets are up to date")
    for item in done:
        what = (
            f"would {item.change.action}"
            if dry_run
            else f"{item.change.action} failed"
            if item.problem
            else item.change.action
        )
        where = item.problem or item.external_id
        print(f"{what:<12} {item.change.key}  {text.printable(item.change.ticket.title)}  {where}".rstrip())
    if files:
        print(f"ticket files in {tickets_folder(settings)}")


def _plain(item: Done) -> dict[str, Any]:
    return {
        "action": item.change.action,
        "key": item.change.key,
        "title": item.change.ticket.title,
        "reason": item.change.reason,
        "state": item.change.ticket.state,
        "external_id": item.external_id,
        "problem": item.problem,
    }


COMMANDS = (
    Command(
        "failures",
        "failure clusters: what fails in the same way, how often, for whom, since when",
        "stagescope failures --last 7d --json",
        failures_options,
        failures,
    ),
    Command(
        "roadmap",
        "the weekly stability roadmap: top three changes with owner, effort, gain and how to verify",
        "stagescope roadmap --week 2026-W48 --format html -o roadmap.html",
        roadmap_options,
        roadmap,
    ),
    Command(
        "tickets sync",
        "open, update, close and reopen tickets from the findings; doing it twice changes nothing",
        "stagescope tickets sync --dry-run",
        tickets_options,
        tickets_sync,
    ),
)
