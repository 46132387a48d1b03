"""ClickHouse's HTTP interface over the embedded engine, with the ordinary clients; readers only read."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
import httpx
import lz4.frame
import pandas as pd
import psutil
import pyarrow as pa
import pytest
import zstandard
from clickhouse_connect.driver.exceptions import DatabaseError

from ingest import endpoint
from ingest.endpoint import Served
from ingest.errors import BadSetting
from ingest.store import Store, running_endpoint


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("served"))) as opened:
        opened.command("CREATE TABLE t (a UInt64, b String) ENGINE = MergeTree ORDER BY a")
        yield opened


@pytest.fixture(scope="module")
def served(store: Store) -> Iterator[Served]:
    with endpoint.serve(store, "127.0.0.1", 0, {"ui_port": 8501}) as running:
        yield running


@pytest.fixture(autouse=True)
def emptied(store: Store) -> None:
    store.command("TRUNCATE TABLE t")


def test_the_ordinary_client_of_the_owner_does_everything(served: Served) -> None:
    client = clickhouse_connect.get_client(dsn=served.owner_url + "/stagescope")
    client.command("CREATE OR REPLACE TABLE mine (a UInt64, b String) ENGINE = MergeTree ORDER BY a")
    assert client.insert("mine", [[1, "x"], [2, "it's\ta\\"]], column_names=["a", "b"]).written_rows == 2
    client.insert_df("mine", pd.DataFrame({"a": [3], "b": ["z"]}))
    client.insert_arrow("mine", pa.table({"a": [4], "b": ["é"]}))
    assert client.query("SELECT b FROM mine ORDER BY a").result_columns == [["x", "it's\ta\\", "z", "é"]]
    found = client.query("SELECT a FROM mine WHERE b = {b:String}", parameters={"b": "it's\ta\\"})
    assert found.result_rows == [(2,)]
    assert client.query_df("SELECT * FROM mine").shape == (4, 2)
    assert client.query_arrow("SELECT * FROM mine").num_rows == 4
    assert client.command("SELECT count() FROM mine") == 4
    client.command("DROP TABLE mine")


def test_a_store_opened_elsewhere_goes_through_it(store: Store, served: Served) -> None:
    code = (
        "import sys; from ingest.store import Store; import pyarrow as pa\n"
        "s = Store.open(sys.argv[1])\n"
        "assert not s.embedded\n"
        "for _ in range(2): s.insert('t', pa.table({'a': [7], 'b': ['q']}), token='once')\n"
        "print(s.value('SELECT count() FROM t WHERE a = {a:UInt64}', a=7))\n"
    )
    store.command("ALTER TABLE t MODIFY SETTING non_replicated_deduplication_window = 100")
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.location.folder)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "1", done.stderr


def test_endpoint_json_tells_the_owner_only(served: Served) -> None:
    assert stat.S_IMODE(served.note.stat().st_mode) == 0o600
    note = json.loads(served.note.read_text())
    assert note["pid"] == os.getpid()
    assert note["ui_port"] == 8501
    assert note["owner_url"] == served.owner_url


def test_a_stale_note_is_no_obstacle_even_when_its_pid_lives_again(tmp_path: Path) -> None:
    other = psutil.Process(os.getppid())
    note = {"pid": other.pid, "started": other.create_time(), "owner_url": "http://owner:x@127.0.0.1:1"}
    (tmp_path / "endpoint.json").write_text(json.dumps(note))
    assert running_endpoint(tmp_path) == note["owner_url"]
    (tmp_path / "endpoint.json").write_text(json.dumps({**note, "started": other.create_time() - 1000}))
    assert running_endpoint(tmp_path) is None
    (tmp_path / "endpoint.json").write_text(json.dumps({**note, "pid": 2**22 + 1}))
    assert running_endpoint(tmp_path) is None
    (tmp_path / "endpoint.json").write_text("{")
    assert running_endpoint(tmp_path) is None


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, 'a')",
        'INSERT INTO t FORMAT JSONEachRow {"a": 1}',
        "CREATE TABLE x (a UInt8) ENGINE = Memory",
        "DROP TABLE t",
        "TRUNCATE TABLE t",
        "OPTIMIZE TABLE t",
        "SYSTEM FLUSH LOGS",
        "KILL QUERY WHERE 1",
        "SELECT file('/etc/passwd')",
        "SELECT /* */ `fi\\x6ce`('/etc/passwd')",
        "SELECT * APPLY(file) FROM (SELECT '/etc/passwd')",
        "SELECT * APPLY file FROM (SELECT '/etc/passwd')",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT * FROM sqlite('/tmp/x', 'y')",
        "SELECT * FROM python(x)",
        "SELECT * FROM Python(x)",
        "SELECT * FROM eval('SELECT 1')",
        "SELECT * FROM s3('http://127.0.0.1:1/a/b')",
        "SELECT * FROM filesystem('/')",
        "SELECT * FROM executable('id', 'TSV', 'a String')",
        "SELECT 1 INTO OUTFILE '/tmp/never'",
        "SELECT 1 INTO/**/OUTFILE '/tmp/never' FORMAT TSV",
        "EXPLAIN SELECT file('/etc/passwd')",
        "WITH (SELECT file('/etc/passwd')) AS x SELECT x",
        "SELECT 1; DROP TABLE t",
        "SET readonly = 0",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT 1 SETTINGS max_memory_usage = 0",
        "BACKUP TABLE t TO File('/tmp/never')",
    ],
)
def test_readers_cannot_write_or_reach_out(served: Served, store: Store, sql: str) -> None:
    answer = httpx.post(served.url, content=sql)
    assert answer.status_code >= 400, answer.text
    assert int(answer.headers["X-ClickHouse-Exception-Code"]) in (164, 62), answer.text
    assert "root:" not in answer.text
    assert not Path("/tmp/never").exists()
    assert store.value("SELECT count() FROM t") == 0


@pytest.mark.parametrize(
    "setting",
    ["readonly=0", "dialect=kusto", "format_template_row=/etc/passwd", "additional_result_filter=file('x')='y'",
     "format_schema=/etc/passwd:X", "output_format_schema=/tmp/never", "allow_ddl=1", "x;y=1"],
)  # fmt: skip
def test_readers_cannot_set_what_reaches_out(served: Served, setting: str) -> None:
    name, _, value = setting.partition("=")
    answer = httpx.get(served.url, params={"query": "SELECT 1", name: value})
    assert answer.headers["X-ClickHouse-Exception-Code"] in ("164", "115")


def test_readers_are_bounded(served: Served) -> None:
    for sql, code in (
        ("SELECT groupArray(number) FROM numbers(10000000000)", {"241", "159"}),
        ("SELECT * FROM numbers(100000000) FORMAT JSON", {"396", "241", "159"}),
        ("SELECT sum(sipHash64(number)) FROM numbers(10000000000)", {"159"}),
    ):
        answer = httpx.post(served.url, content=sql, params={"max_execution_time": 2}, timeout=60)
        assert answer.headers.get("X-ClickHouse-Exception-Code") in code, (sql, answer.text[:200])
    assert (
        httpx.get(served.url, params={"query": "SELECT getSetting('max_execution_time')", "max_execution_time": 0}).text
        == "60\n"
    )


def test_a_long_result_is_streamed_and_a_broken_one_is_not_taken_for_whole(served: Served) -> None:
    with httpx.stream(
        "POST", served.url, content="SELECT number FROM numbers(3000000) FORMAT TSV", timeout=60
    ) as answer:
        assert answer.status_code == 200
        assert sum(chunk.count(b"\n") for chunk in answer.iter_bytes()) == 3_000_000
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(served.url, content="SELECT throwIf(number = 2000000) FROM numbers(3000000) FORMAT TSV", timeout=60)


@pytest.mark.parametrize(
    ("sql", "code", "status"),
    [
        ("SELECT * FROM nowhere", 60, 404),
        ("SELEC 1", 62, 400),
        ("SELECT nope", 47, 404),
        ("SELECT toUInt8('x')", 6, 500),
    ],
)
def test_errors_carry_the_engines_code(served: Served, sql: str, code: int, status: int) -> None:
    answer = httpx.post(served.url, content=sql)
    assert (int(answer.headers["X-ClickHouse-Exception-Code"]), answer.status_code) == (code, status)
    assert answer.text.startswith(f"Code: {code}. ")
    with pytest.raises(DatabaseError) as told:
        clickhouse_connect.get_client(dsn=served.url).query(sql)
    assert told.value.code == code


def test_readers_count_each_stored_thing_once(store: Store, served: Served) -> None:
    store.command("CREATE OR REPLACE TABLE twice (a UInt64) ENGINE = ReplacingMergeTree ORDER BY a")
    store.command("SYSTEM STOP MERGES twice")
    for _ in range(2):
        store.command("INSERT INTO twice VALUES (1)")
    assert httpx.get(served.url, params={"query": "SELECT count() FROM twice"}).text == "1\n"
    assert httpx.get(served.url, params={"query": "SELECT count() FROM twice", "final": "0"}).text == "2\n"
    store.command("DROP TABLE twice")


def test_query_in_the_address_the_body_or_both(served: Served) -> None:
    assert httpx.get(served.url).text == "Ok.\n"
    assert httpx.get(f"{served.url}/ping").text == "Ok.\n"
    assert httpx.get(served.url, params={"query": "SELECT 1"}).text == "1\n"
    assert httpx.post(served.url, content="SELECT 1").text == "1\n"
    both = httpx.post(f"{served.owner_url}/?query=INSERT+INTO+t+FORMAT+JSONEachRow", content='{"a": 5, "b": "x"}\n')
    assert both.status_code == 200, both.text
    assert json.loads(both.headers["X-ClickHouse-Summary"])["written_rows"] == "1"
    answer = httpx.get(served.url, params={"query": "SELECT a FROM t", "default_format": "JSONEachRow"})
    assert (answer.text, answer.headers["X-ClickHouse-Format"]) == ('{"a":5}\n', "JSONEachRow")
    named = httpx.get(
        served.url,
        params={"query": "SELECT {x:UInt8} + 1 AS y", "param_x": "4"},
        headers={"X-ClickHouse-Format": "JSON"},
    )
    assert named.json()["data"] == [{"y": 5}]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "lz4", "deflate", ""])
def test_compression_both_ways(served: Served, encoding: str) -> None:
    squeeze = {"gzip": gzip.compress, "zstd": zstandard.compress, "lz4": lz4.frame.compress}.get(encoding)
    rows = b"".join(b'{"a": %d, "b": "%s"}\n' % (number, b"x" * 50) for number in range(1000))
    sent = httpx.post(
        f"{served.owner_url}/?query=INSERT+INTO+t+FORMAT+JSONEachRow",
        content=squeeze(rows) if squeeze else rows,
        headers={"Content-Encoding": encoding} if squeeze else {},
    )
    assert sent.status_code == 200, sent.text
    client = clickhouse_connect.get_client(dsn=served.url + "/stagescope", compress=encoding or False)
    assert client.query("SELECT count(), sum(a) FROM t").result_rows == [(1000, 499500)]
    assert len(client.query("SELECT * FROM t").result_rows) == 1000


def test_a_body_too_large_or_not_what_it_says_is_refused(served: Served) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    for body, encoding, code in (
        (bomb, "gzip", "307"),
        (b"x" * (2 << 20), "", "307"),
        (b"junk", "gzip", "354"),
        (b"x", "br", "48"),
    ):
        answer = httpx.post(served.url, content=body, headers={"Content-Encoding": encoding} if encoding else {})
        assert answer.headers["X-ClickHouse-Exception-Code"] == code
    assert httpx.post(served.url, content=b"SELECT \xff").headers["X-ClickHouse-Exception-Code"] == "62"


def test_who_asks(served: Served) -> None:
    password = served.owner_url.split(":")[2].split("@")[0]
    write = {"query": "INSERT INTO t VALUES (1, 'x')"}
    for params, headers in (
        ({"user": "owner", "password": password}, {}),
        ({}, {"X-ClickHouse-User": "owner", "X-ClickHouse-Key": password}),
    ):
        assert httpx.post(served.url, params={**write, **params}, headers=headers).status_code == 200
        assert httpx.get(served.url, params={**write, **params}, headers=headers).status_code == 403, "GET only reads"
    assert httpx.post(served.url, params=write, auth=("owner", password)).status_code == 200
    for user, secret in (("owner", "wrong"), ("owner", "")):
        answer = httpx.post(served.url, params={"query": "SELECT 1"}, auth=(user, secret))
        assert answer.headers["X-ClickHouse-Exception-Code"] == "516"
    assert httpx.post(served.url, params={"query": "SELECT 1"}, auth=("analyst", "any")).text == "1\n"
    assert httpx.post(served.url, params=write, auth=("analyst", "any")).status_code == 403


def test_curl(served: Served) -> None:
    done = subprocess.run(
        ["curl", "-sS", "--compressed", f"{served.url}/?enable_http_compression=1", "--data-binary", "SELECT 1 AS a FORMAT JSONEachRow"],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout == '{"a":1}\n'


def test_many_at_once(served: Served) -> None:
    answers: list[str] = []

    def ask() -> None:
        answers.append(
            httpx.get(served.url, params={"query": "SELECT sum(number) FROM numbers(1000000)"}, timeout=60).text
        )

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["499999500000\n"] * 24


def test_a_taken_port_is_a_setting_to_change(store: Store, served: Served) -> None:
    with pytest.raises(BadSetting, match="a free port"):
        endpoint.serve(store, "127.0.0.1", int(served.url.rsplit(":", 1)[1]))
