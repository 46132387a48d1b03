"""Commands on the store itself: sql, ui."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ingest.errors import StagescopeError
from ingest.settings import Settings
from ui.command import DONE, Command, reading


def sql_options(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="SQL", help="one SELECT; - reads it from standard input")
    parser.add_argument(
        "--format",
        metavar="F",
        help="a ClickHouse output format: JSON, JSONEachRow, CSVWithNames, Vertical … (PrettyCompact on a terminal, else TSV)",
    )


def sql(args: Namespace, settings: Settings) -> int:
    """Run one statement that may only read."""
    query = sys.stdin.read() if args.query == "-" else args.query
    if not query.strip():
        raise StagescopeError("the query is empty")
    fmt = args.format or ("PrettyCompactMonoBlock" if sys.stdout.isatty() else "TabSeparatedWithNames")
    with reading(settings) as store:
        client = store.new_client(**({"final": 1, "readonly": 1} if store.embedded else {"readonly": 1}))
        try:
            answer = client.raw_query(query.strip().rstrip(";"), fmt=fmt)
        finally:
            client.close()
    sys.stdout.buffer.write(answer)
    return DONE


COMMANDS = (
    Command(
        "sql",
        "read-only SQL on the store",
        'stagescope sql "SELECT Stage, count() FROM stage_runs GROUP BY Stage" --format JSONEachRow',
        sql_options,
        sql,
    ),
)
