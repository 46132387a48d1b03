"""Commands on alerts: alerts list, alerts silence, alerts unsilence. `watch` tells the receivers; nothing is sent from here.

Must stay true: a silence names at least one label and has an end.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ingest.errors import BadSetting
from ingest.settings import Settings
from ui import text
from ui.command import DONE, Command, duration_s, emit, json_option, reading, writing

if TYPE_CHECKING:
    from analytics.alerts import Silence


def list_options(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also those that are over")
    json_option(parser)


def list_alerts(args: Namespace, settings: Settings) -> int:
    """Print where every alert stands, and the silences in force."""
    from analytics import alerts_watch
    from analytics.alerts import RESOLVED

    now = datetime.now(UTC)
    with reading(settings) as store:
        known = [kept.alert for kept in alerts_watch.read(store)]
        quiet = alerts_watch.silences(store, now)
    shown = [alert for alert in known if args.all or alert.state != RESOLVED]
    if args.json:
        rows = [
            {"key": item.key, "rule": item.rule, "state": item.state, "severity": item.severity, "since": item.since,
             "value": item.value, "threshold": item.threshold, "summary": item.summary, "labels": dict(item.labels),
             "silenced": any(one.covers(item, now) for one in quiet)}
            for item in shown
        ]  # fmt: skip
        return emit({"alerts": rows, "silences": [_plain(item) for item in quiet]})
    if not shown:
        print("no alerts" if args.all else "no alert is pending or firing")
    for item in shown:
        silenced = " (silenced)" if any(one.covers(item, now) for one in quiet) else ""
        print(
            f"{item.state:<9} {item.severity:<9} {item.key}{silenced}  since {text.moment(item.since)}  {text.printable(item.summary)}"
        )
    for one in quiet:
        matches = ", ".join(f"{name}={value}" for name, value in one.matches.items())
        print(f"silence {one.silence_id}: {matches} until {text.moment(one.end)}  {text.printable(one.note)}".rstrip())
    return DONE


def silence_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--match", action="append", required=True, metavar="LABEL=VALUE", help="alertname, severity …; all must match"
    )
    parser.add_argument(
        "--for", dest="length", required=True, metavar="DURATION", help="how long from now: 30m, 2h, 3d"
    )
    parser.add_argument("--note", default="", help="why, for those who look later")
    json_option(parser)


def silence(args: Namespace, settings: Settings) -> int:
    """Tell nobody of matching alerts for a while."""
    from analytics import alerts_watch
    from analytics.alerts import Silence

    matches = _matches(args.match, settings)
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(seconds=duration_s(args.length, "--for"))
    item = Silence(uuid4().hex[:8], matches, now, end, args.note)
    with writing(settings) as store:
        alerts_watch.silence(store, item)
    if args.json:
        return emit(_plain(item))
    print(
        f"silence {item.silence_id} until {text.moment(end)}; end it with: stagescope alerts unsilence {item.silence_id}"
    )
    return DONE


def unsilence_options(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="as `alerts list` shows it")


def unsilence(args: Namespace, settings: Settings) -> int:
    """End a silence now."""
    from dataclasses import replace

    from analytics import alerts_watch

    now = datetime.now(UTC)
    with writing(settings) as store:
        found = next((item for item in alerts_watch.silences(store, now) if item.silence_id == args.id), None)
        if found is None:
            raise BadSetting("ID", args.id, "a silence in force, as `stagescope alerts list` shows it")
        alerts_watch.silence(store, replace(found, end=now))
    print(f"silence {args.id} has ended")
    return DONE


def _matches(pairs: Sequence[str], settings: Settings) -> dict[str, str]:
    from analytics.alerts_watch import load_rules

    out: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals or not value.strip():
            raise BadSetting("--match", pair, "LABEL=VALUE such as alertname=slow or severity=critical")
        out[name.strip()] = value.strip()
    rules = [rule.name for rule in load_rules(Path(settings.alert_rules) if settings.alert_rules else None)]
    if out.get("alertname", rules[0] if rules else "") not in rules:
        raise BadSetting("--match", f"alertname={out['alertname']}", f"one of {', '.join(rules)}")
    return out


def _plain(item: Silence) -> dict[str, Any]:
    return {
        "id": item.silence_id,
        "matches": dict(item.matches),
        "start": item.start,
        "end": item.end,
        "note": item.note,
    }


COMMANDS = (
    Command(
        "alerts list", "where every alert stands, and the silences", "stagescope alerts list", list_options, list_alerts
    ),
    Command(
        "alerts silence",
        "tell nobody of some alerts for a while",
        'stagescope alerts silence --match alertname=slow --for 2h --note "load test"',
        silence_options,
        silence,
    ),
    Command("alerts unsilence", "end a silence", "stagescope alerts unsilence 1f3a9c02", unsilence_options, unsilence),
)
