"""The Store: addresses, one owner a folder, once per token, readers that count each thing once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from ingest import endpoint
from ingest.errors import BadSetting, Unavailable
from ingest.store import Store, locate, running_endpoint, schema_statements

ROWS = pa.table({"a": pa.array([1, 2], pa.uint64())})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "s"), migrate=True) as opened:
        opened.command(
            "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10"
        )
        yield opened


def count(store: Store, table: str) -> int:
    return int(store.command(f"SELECT count() FROM {table} SETTINGS final = 0"))


def test_the_same_token_is_stored_once_and_another_again(store: Store) -> None:
    for token in ("x", "x", "y"):
        assert store.insert("t", ROWS, token=token) == 2
    assert count(store, "t") == 4
    store.insert_bytes("t", "JSONEachRow", b'{"a": 5}\n', token="z")
    store.insert_bytes("t", "JSONEachRow", b'{"a": 5}\n', token="z")
    assert count(store, "t") == 5
    assert store.insert("t", pd.DataFrame({"a": []})) == 0


def test_a_repeat_mends_a_view_that_a_crash_left_behind(store: Store) -> None:
    store.command(
        "CREATE TABLE beside (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10"
    )
    store.insert("t", ROWS, token="x")
    store.command("CREATE MATERIALIZED VIEW t_mv TO beside AS SELECT a FROM t")
    for _ in range(2):
        store.insert("t", ROWS, token="x")
    assert (count(store, "t"), count(store, "beside")) == (2, 2)


def test_readers_count_what_was_written_twice_once(store: Store) -> None:
    store.command("CREATE TABLE r (a UInt64) ENGINE = ReplacingMergeTree ORDER BY a")
    store.command("SYSTEM STOP MERGES r")
    for _ in range(2):
        store.insert("r", ROWS)
    assert count(store, "r") == 4
    assert (
        store.value("SELECT count() FROM r")
        == len(store.read("SELECT a FROM r"))
        == store.read_arrow("SELECT a FROM r").num_rows
        == 2
    )
    assert store.value("SELECT a FROM r WHERE a = {a:UInt64}", a=7) is None


def test_the_schema_may_be_applied_again(store: Store) -> None:
    for statement in schema_statements():
        store.command(statement)


def test_the_engines_errors_stay_errors(store: Store) -> None:
    with pytest.raises(DatabaseError) as told:
        store.read("SELECT * FROM nowhere")
    assert told.value.code == 60


def test_a_second_process_is_told_who_owns_the_folder(store: Store) -> None:
    code = (
        "import sys; from ingest.store import Store; from ingest.errors import Unavailable\n"
        "try: Store.open(sys.argv[1])\nexcept Unavailable as err: print(err)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.location.folder)], capture_output=True, text=True, timeout=60
    )
    assert "Another process may own it" in done.stdout, done.stderr


def test_whoever_went_through_an_owner_finds_the_next_one(store: Store) -> None:
    folder = store.location.folder
    assert folder is not None
    code = (
        "import sys; from ingest.store import Store; from ingest.errors import Unavailable\n"
        "s = Store.open(sys.argv[1])\n"
        "for line in sys.stdin:\n"
        "    try: print(s.value('SELECT 1'), flush=True)\n"
        "    except Unavailable: print('away', flush=True)\n"
    )
    first = endpoint.serve(store, "127.0.0.1", 0)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask() -> str:
            print("", file=other.stdin, flush=True)
            return str(other.stdout.readline()).strip()  # type: ignore[union-attr]

        assert ask() == "1"
        first.close()
        assert ask() == "away"
        with endpoint.serve(store, "127.0.0.1", 0):
            assert ask() == "1"
        other.stdin.close()


def test_addresses(tmp_path: Path) -> None:
    assert locate(str(tmp_path)).folder == locate(f"chdb://{tmp_path}").folder == tmp_path
    assert locate("chdb:///a%20b").folder == Path("/a b")
    assert locate("http://u:p@h:8123").database == "stagescope"
    assert locate("https://h/other").database == "other"
    for url in ("ftp://x", "chdb://", "http://h/a;b"):
        with pytest.raises(BadSetting) as told:
            locate(url)
        assert "u:p" not in str(told.value)


def test_a_server_that_is_away_is_unavailable_and_its_password_is_not_told() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/x does not answer") as told:
        Store.open("http://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none"])
def test_a_place_where_no_folder_can_be_is_a_bad_setting(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BadSetting, match=r"STAGESCOPE_STORE.*a folder that exists or can be made"):
        Store.open(str(tmp_path / place))


def test_a_killed_owner_that_nobody_reaped_is_gone(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note = {
        "pid": owner.pid,
        "started": psutil.Process(owner.pid).create_time(),
        "owner_url": "http://owner:x@127.0.0.1:1",
    }
    (tmp_path / "endpoint.json").write_text(json.dumps(note))
    assert running_endpoint(tmp_path) == note["owner_url"]
    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, still in the process table
    assert running_endpoint(tmp_path) is None
    owner.communicate()


def test_a_server_that_does_not_answer_is_said_in_few_words() -> None:
    with pytest.raises(Unavailable) as told:
        Store.open("http://user:secret@127.0.0.1:1/x")
    assert "127.0.0.1:1" in str(told.value)
    assert "refused" in str(told.value)
    assert "secret" not in str(told.value)
    assert len(str(told.value)) < 200
