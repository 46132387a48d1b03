"""How many statements a text holds: quotes, comments and semicolons do not mislead it."""

import pytest

from ingest.statement import parts


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT 1", 1),
        ("SELECT 1;", 1),
        ("SELECT 1; -- and ; more\n", 1),
        ("SELECT ';', \";\", `;` -- ;", 1),
        ("SELECT '\\';'", 1),
        ("/* a; b */ SELECT 1", 1),
        ("-- only words", 0),
        (" ;; /* none */", 0),
        ("SELECT 1; SELECT 2", 2),
        ("SELECT 1 /* ; */; SELECT ';' ;", 2),
    ],
)
def test_statements_are_counted_past_quotes_and_comments(text: str, count: int) -> None:
    assert parts(text) == count
