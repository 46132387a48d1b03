"""What a command is, and the options that many share. Exit codes: 0 done, 1 failed, 2 bad usage or setting, 3 some input rejected."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings

if TYPE_CHECKING:
    from analytics.findings import Window
    from ingest.store import Store

DONE, FAILED, USAGE, REJECTED = 0, 1, 2, 3
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words (`tickets sync`), what it does, an example, its options, and the function that does it."""

    words: str
    help: str
    example: str
    options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Settings], int]


def no_options(_: ArgumentParser) -> None:
    """For a command that takes only the common options."""


def json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def time_options(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="start", metavar="T", help="start, ISO 8601; UTC is meant without a zone")
    parser.add_argument("--to", dest="end", metavar="T", help="end (not included); now if left out")
    parser.add_argument("--last", metavar="DURATION", help="a span that ends now: 90s, 15m, 1h, 7d, 2w")


def duration_s(text: str, option: str) -> float:
    """`90s 15m 1h 7d 250ms` in seconds. Raises BadSetting naming the option."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\s*", text)
    if not found or float(found[1]) <= 0:
        raise BadSetting(option, text, "a positive duration such as 90s, 15m, 1h, 7d or 2w")
    return float(found[1]) * UNITS_S[found[2]]


def window(args: Namespace, store: Store, default: str) -> Window:
    """The span a command looks at, from --from/--to/--last.

    With none given: the last `default`, or, when the store holds nothing that young, the same span up to its newest
    stage run, which is said on stderr.
    """
    from analytics import run

    if args.last and (args.start or args.end):
        raise BadSetting("--last", args.last, "either --last or --from/--to, not both")
    if args.start:
        return run.between(args.start, args.end)
    if args.end:
        return run.last(default, run.between("1970-01-01", args.end).end)
    asked = run.last(args.last or default)
    known = None if args.last else run.covering(store)
    if known is None or known.end > asked.start:
        return asked
    print(f"nothing in the last {default}: looking at the {default} up to {known.end:%Y-%m-%d %H:%M}Z", file=sys.stderr)
    return run.last(default, known.end)


@contextmanager
def reading(settings: Settings) -> Iterator[Store]:
    """The store for looking only: through a running `up` as a reader, or opened here. What the engine refuses is one line."""
    from ingest import store as room

    location = room.locate(settings.store)
    running = room.running_endpoint(location.folder) if location.folder else None
    if running:
        url, migrate = f"{without_user(running)}/{room.DATABASE}", False
    elif location.folder and not location.folder.is_dir():
        raise StagescopeError(
            f"there is no store in {location.folder} yet: fill it with `stagescope up`, `stagescope ingest` or "
            "`stagescope demo`, or name another with --store"
        )
    else:
        url, migrate = settings.store, location.folder is not None
    with _opened(url, migrate) as store:
        yield store


@contextmanager
def writing(settings: Settings) -> Iterator[Store]:
    """The store for commands that write: through a running `up` as its owner, or opened here."""
    with _opened(settings.store, True) as store:
        yield store


@contextmanager
def _opened(url: str, migrate: bool) -> Iterator[Store]:
    from clickhouse_connect.driver.exceptions import ClickHouseError

    from ingest.store import Store

    try:
        with Store.open(url, migrate=migrate) as store:
            yield store
    except ClickHouseError as err:
        raise StagescopeError(f"the store refused: {engine_words(str(err))}") from err


def engine_words(message: str) -> str:
    """The engine's own sentence out of a driver's message, without stack, version and repetition."""
    words = re.split(r"DB::Exception:", message)[-1]
    return " ".join(re.split(r"\(version |\n\nStack|Stack trace", words)[0].split())[:600]


def without_user(url: str) -> str:
    """`url` without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def emit(document: object) -> int:
    """Print one JSON document on stdout."""
    from ui import text

    print(text.to_json(document))
    return DONE


def say(line: str) -> None:
    """A line about progress: only on a terminal, on stderr, so that a pipe stays quiet."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
