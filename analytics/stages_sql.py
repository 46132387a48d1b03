"""The statements of analytics/sql, and tables that live for one piece of work.

Must stay true: only names of tables and compiled expressions are put into a statement; values are always bound.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from string import Template

from ingest.store import Store

SCRATCH = "scratch_"


def statement(name: str, **names: str) -> str:
    """The text of analytics/sql/`name` with `$word` replaced."""
    text = (resources.files("analytics") / "sql" / name).read_text()
    return Template(text).substitute(names) if names else text


@contextmanager
def scratch(store: Store, name: str, columns: str) -> Iterator[str]:
    """A table in memory for the length of the block; yields its name."""
    table = f"{SCRATCH}{name}_{uuid.uuid4().hex[:12]}"
    store.command(f"CREATE TABLE {table} ({columns}) ENGINE = Memory")
    try:
        yield table
    finally:
        store.command(f"DROP TABLE IF EXISTS {table}")


def sweep(store: Store) -> None:
    """Drop scratch tables that a killed process left behind more than an hour ago."""
    found = store.read(statement("scratch_left.sql"), prefix=SCRATCH)
    for name in found["name"].tolist() if len(found) else ():
        store.command(f"DROP TABLE IF EXISTS {name}")
