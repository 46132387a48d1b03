"""Commands on the store itself: sql, ui."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings
from ui.command import DONE, Command, reading

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


def sql_options(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="SQL", help="one SELECT; - reads it from standard input")
    parser.add_argument(
        "--format",
        metavar="F",
        help="a ClickHouse output format: JSON, JSONEachRow, CSVWithNames, Vertical … (PrettyCompact on a terminal, else TSV)",
    )


def sql(args: Namespace, settings: Settings) -> int:
    """Run one statement that may only read."""
    query = sys.stdin.buffer.read().decode(errors="surrogateescape") if args.query == "-" else args.query
    if not query.strip(" \t\r\n;"):
        raise StagescopeError("the query is empty")
    if any("\ud800" <= letter <= "\udfff" for letter in query):  # how Python hands on bytes that are no text
        raise StagescopeError("the query is not UTF-8 text")
    with reading(settings) as store:
        client = store.new_client(**({"final": 1, "readonly": 1} if store.embedded else {"readonly": 1}))
        try:
            answer = client.raw_query(*_statement(client, query, args.format))
        finally:
            client.close()
    sys.stdout.buffer.write(answer)
    return DONE


def _statement(client: Client, query: str, asked: str | None) -> tuple[str, None, None, str | None]:
    """The arguments of `raw_query`: the text as the engine reads it (no comments, no `;`), and the format unless it names one."""
    from ingest.statement import output_format, parts

    count = parts(query)
    if count != 1:
        raise StagescopeError(f"one statement at a time, found {count}" if count else "the query has only comments")
    read = client.query("SELECT formatQuerySingleLineOrNull({text:String})", parameters={"text": query}).result_rows
    text = str(read[0][0] or query).strip().rstrip(";")
    own = output_format(text, "")
    if own and asked:
        raise BadSetting("--format", asked, f"either --format or FORMAT {own} in the query, not both")
    fallback = "PrettyCompactMonoBlock" if sys.stdout.isatty() else "TabSeparatedWithNames"
    return text, None, None, None if own else asked or fallback


COMMANDS = (
    Command(
        "sql",
        "read-only SQL on the store",
        'stagescope sql "SELECT Stage, count() FROM stage_runs GROUP BY Stage" --format JSONEachRow',
        sql_options,
        sql,
    ),
)
