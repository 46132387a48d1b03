"""One Store for the embedded engine (chDB) and a ClickHouse server, through clickhouse-connect.

Must stay true: every reader sees each stored thing once (`final = 1` on every read), and one process owns an embedded folder.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import pandas as pd
import psutil
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError

from ingest.errors import BadSetting, Unavailable

DATABASE = "stagescope"
WRONG_PASSWORD = 516
READ_SETTINGS: Mapping[str, Any] = {"final": 1, "do_not_merge_across_partitions_select_final": 1}


def _once(token: str) -> dict[str, Any]:
    """Settings that store a block once per table, also in tables filled by views when only part of the block got through."""
    if not token:
        return {}
    return {"insert_deduplication_token": token, "deduplicate_blocks_in_dependent_materialized_views": 1}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is: `folder` for an embedded one, else `dsn` of a server's HTTP interface."""

    folder: Path | None
    dsn: str
    database: str = DATABASE


def locate(url: str) -> Location:
    """Read `--store`: a folder, `chdb:///abs/folder`, or `http(s)://user:pass@host:8123/database`."""
    if url.startswith(("http://", "https://")):
        database = urlsplit(url).path.strip("/") or DATABASE
        if not database.replace("_", "").isalnum():
            raise BadSetting("STAGESCOPE_STORE", _without_secret(url), "a database name of letters, digits and _")
        return Location(None, url, database)
    if "://" in url and not url.startswith("chdb://"):
        raise BadSetting(
            "STAGESCOPE_STORE", url, "a folder, chdb:///abs/folder or http(s)://user:pass@host:8123/database"
        )
    path = unquote(urlsplit(url).path) if url.startswith("chdb://") else url
    if not path:
        raise BadSetting("STAGESCOPE_STORE", url, "a folder name after chdb://")
    folder = Path(path).expanduser().absolute()
    return Location(folder, f"chdb://{folder}")


class Store:
    """Tables to write into and read from. Thread-safe: each thread gets a client of its own.

    `Store.open` makes the database and tables if they are missing. An embedded folder that a running `stagescope up`
    owns is reached through that process (its `endpoint.json` tells where).
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._home: Path | None = None  # the folder of another process through which we go
        self._local = threading.local()
        self._clients: list[Client] = []
        self._lock = threading.Lock()

    @classmethod
    def open(cls, url: str, *, migrate: bool = True) -> Store:
        """Open or make the store at `url`. Raises BadSetting, or Unavailable when it is away or owned by another process."""
        location, home = locate(url), None
        if location.folder is not None and (running := running_endpoint(location.folder)):
            location, home = Location(None, running, DATABASE), location.folder
            migrate = False
        elif location.folder is not None:
            make_folder(location.folder, "STAGESCOPE_STORE")
        store = cls(location)
        store._home = home
        if migrate:
            store._migrate()
        return store

    @property
    def embedded(self) -> bool:
        return self.location.folder is not None

    @property
    def local(self) -> bool:
        """True when the embedded engine answers, in this process or in the one that owns the folder."""
        return self.embedded or self._home is not None

    @property
    def client(self) -> Client:
        """This thread's own client."""
        found: Client | None = getattr(self._local, "client", None)
        if found is None:
            found = self.new_client()
            self._local.client = found
            with self._lock:
                self._clients.append(found)
        return found

    def new_client(self, **settings: Any) -> Client:
        """A fresh client; the caller closes it. With readonly=1 the embedded connection stays read-only for good."""
        if self._home is not None and (running := running_endpoint(self._home)):
            self.location = Location(None, running, DATABASE)
        try:
            return clickhouse_connect.get_client(dsn=self._dsn(), settings=settings or None, **self._options())
        except (ClickHouseError, OSError) as err:
            raise Unavailable(self._away(err)) from err

    def insert(
        self, table: str, rows: pa.Table | pd.DataFrame, *, token: str = "", settings: Mapping[str, Any] | None = None
    ) -> int:
        """Write rows (columns by name) and return how many. The same `token` twice on one table stores them once."""
        if len(rows) == 0:
            return 0
        settings = {**(settings or {}), **_once(token)}
        arrow = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        self._guard(lambda: self.client.insert_arrow(table, arrow, database=self.location.database, settings=settings))
        return len(rows)

    def insert_bytes(
        self, table: str, fmt: str, data: bytes, *, token: str = "", settings: Mapping[str, Any] | None = None
    ) -> None:
        """Hand `data` in ClickHouse format `fmt` to the engine as it is."""
        merged = {**(settings or {}), **_once(token)}
        target = f"{self.location.database}.{table}"
        self._guard(lambda: self.client.raw_insert(target, insert_block=data, fmt=fmt, settings=merged))

    def read(self, sql: str, **params: Any) -> pd.DataFrame:
        """Rows of a SELECT with `{name:Type}` placeholders bound from `params`; every stored thing once."""
        frame: pd.DataFrame = self._guard(
            lambda: self.client.query_df(sql, parameters=params or None, settings=self._read_settings())
        )
        return frame

    def read_arrow(self, sql: str, **params: Any) -> pa.Table:
        """As `read`, into Arrow: cheaper for wide or long results."""
        return self._guard(
            lambda: self.client.query_arrow(sql, parameters=params or None, settings=self._read_settings())
        )

    def value(self, sql: str, **params: Any) -> Any:
        """The first column of the first row."""
        rows = self._guard(
            lambda: self.client.query(sql, parameters=params or None, settings=self._read_settings())
        ).result_rows
        return rows[0][0] if rows else None

    def rough(self, sql: str, **params: Any) -> Any:
        """As `value`, but things stored twice may count twice where that is cheaper: to decide how to ask, never to show."""
        settings = self._read_settings()
        cheap = {**settings, "final": 0} if "final" in settings else settings
        rows = self._guard(lambda: self.client.query(sql, parameters=params or None, settings=cheap)).result_rows
        return rows[0][0] if rows else None

    def command(self, sql: str, *, settings: Mapping[str, Any] | None = None, **params: Any) -> Any:
        """Run a statement that returns no rows (or one value)."""
        return self._guard(lambda: self.client.command(sql, parameters=params or None, settings=dict(settings or {})))

    def close(self) -> None:
        """Let go of every client; an embedded folder is free for another process afterwards."""
        with self._lock:
            clients, self._clients = self._clients, []
        self._local = threading.local()
        for client in clients:
            client.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dsn(self) -> str:
        if self.embedded:
            return f"{self.location.dsn}?database={self.location.database}"
        parts = urlsplit(self.location.dsn)
        return parts._replace(path=f"/{self.location.database}").geturl()

    def _options(self) -> dict[str, Any]:
        return {} if self.embedded else {"autogenerate_session_id": False, "send_receive_timeout": 600}

    def _read_settings(self) -> dict[str, Any]:
        """READ_SETTINGS, less what a read-only user may not send because its profile sets it already."""
        known = self.client.server_settings
        fixed = {name for name, value in READ_SETTINGS.items() if name in known and known[name].readonly}
        return {
            name: value
            for name, value in READ_SETTINGS.items()
            if name not in fixed or (name == "final" and str(known[name].value) != str(value))
        }

    def _migrate(self) -> None:
        admin = self._admin()
        try:
            self._guard(lambda: admin.command(f"CREATE DATABASE IF NOT EXISTS {self.location.database}"))
        finally:
            admin.close()
        statements = schema_statements()
        for text in [";\n".join(statements)] if self.embedded else statements:  # at once costs half the time
            self.command(text)

    def _admin(self) -> Client:
        dsn = self.location.dsn if self.embedded else urlsplit(self.location.dsn)._replace(path="/default").geturl()
        try:
            return clickhouse_connect.get_client(dsn=dsn, **self._options())
        except (ClickHouseError, OSError) as err:
            raise Unavailable(self._away(err)) from err

    def _away(self, err: Exception) -> str:
        if self.embedded:
            return (
                f"the store in {self.location.folder} cannot be opened: {_first_line(err)}. "
                "Another process may own it: stop that one, or use another folder with --store"
            )
        return f"ClickHouse at {_without_secret(self.location.dsn)} does not answer: {_first_line(_root(err))}"

    def _guard(self, call: Any) -> Any:
        try:
            return call()
        except DatabaseError as err:
            away = isinstance(err, OperationalError) and not err.code
            if not away and not (self._home is not None and err.code == WRONG_PASSWORD):
                raise
            self._local.client = None  # whoever owns the store may have come back elsewhere
            raise Unavailable(self._away(err)) from err
        except (ClickHouseError, OSError) as err:
            raise Unavailable(self._away(err)) from err


def make_folder(folder: Path, setting: str) -> None:
    """The folder with its parents, if it is not there. Raises BadSetting naming `setting` when it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise BadSetting(setting, str(folder), f"a folder that exists or can be made ({err.strerror})") from err


def running_endpoint(folder: Path) -> str | None:
    """The owner's address of a running `up` on `folder`, from its endpoint.json; None when nobody runs there.

    A note left by a killed process is no obstacle, not even when its pid now belongs to another process or nobody reaped it.
    """
    try:
        found = json.loads((folder / "endpoint.json").read_text())
        pid, started, url = int(found["pid"]), float(found["started"]), str(found["owner_url"])
        process = psutil.Process(pid)
        lives = abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return url if lives and pid != os.getpid() else None


def schema_statements() -> Sequence[str]:
    """The statements of `schema/*.sql` in file order; each is safe to apply again."""
    folder = resources.files("ingest") / "schema"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    statements: list[str] = []
    for name in names:
        lines = [line for line in (folder / name).read_text().splitlines() if not line.lstrip().startswith("--")]
        statements += [part.strip() for part in "\n".join(lines).split(";\n") if part.strip().strip(";")]
    return [statement.rstrip(";") for statement in statements]


def _first_line(err: BaseException) -> str:
    return str(err).strip().splitlines()[0][:300] if str(err).strip() else type(err).__name__


def _root(err: BaseException) -> BaseException:
    """What began it: the drivers wrap a refused connection three times, with addresses that nobody needs."""
    reason = getattr(err, "reason", None) or err.__cause__
    return _root(reason) if isinstance(reason, BaseException) else err


def _without_secret(dsn: str) -> str:
    parts = urlsplit(dsn)
    host = parts.hostname or ""
    return parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
