"""One battery for every failure index: the store's table, and a server that speaks Elasticsearch."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import BadSetting, Unavailable
from ingest.failure_document import Put, from_elastic, iso, mappings, nanoseconds, to_elastic
from ingest.failure_elastic import ElasticFailures
from ingest.failure_index import StoreFailures, catch_up, open_index
from ingest.settings import Settings
from ingest.store import Store

START_NS = 1_800_000_000_123_456_789
INDEXES = ("store", "elastic")


def _document(number: int, **more: Any) -> dict[str, Any]:
    return {
        "Timestamp": START_NS + number, "TraceId": f"{number:032x}", "SpanId": f"{number:016x}", "ServiceName": "svc", "Stage": "fetch",
        "Kind": "fetch", "Tier": "edge", "Tool": "weather", "Model": "", "Region": "eu", "Device": "ios", "UserTier": "paid", "UserId": "u1",
        "SessionId": "s1", "Version": "1", "Host": "n1", "ErrorType": "TimeoutError", "Message": "Tool execution exceeded 30s",
        "Frames": ["a.py:1", "b.py:2"], "Context": {"kv_usage": "0.9"}, "ClusterId": "", "Revision": 10, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("failures"))) as found:
        yield found


@pytest.fixture
def store(opened: Store) -> StoreFailures:
    opened.command("TRUNCATE TABLE failures")
    return StoreFailures(opened)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """STAGESCOPE_TEST_ES, or the small server of the package noida-db."""
    if outside := os.environ.get("STAGESCOPE_TEST_ES"):
        yield outside
        return
    program = shutil.which("noida-db", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("no Elasticsearch: pip install noida-db, or set STAGESCOPE_TEST_ES=http://host:9200")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("es")
    command = [
        program,
        "start",
        "--only",
        "elasticsearch",
        "--elasticsearch-port",
        str(port),
        "--data-dir",
        str(folder),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, start_new_session=True
    )
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
            break
        except OSError:
            continue
    yield f"http://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGTERM)  # the server is a child of the program
    process.wait(10)


@pytest.fixture
def elastic(address: str, request: pytest.FixtureRequest) -> Iterator[ElasticFailures]:
    stream = f"stagescope-failures-{abs(hash(request.node.name))}"
    found = ElasticFailures(address, stream=stream, wait=lambda _: None)
    yield found
    found.close()


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def _all(index: Any) -> list[dict[str, Any]]:
    if isinstance(index, ElasticFailures):
        index.refresh()
    return [dict(one) for one in index.read(START_NS, START_NS + 10**9)]


def test_what_goes_in_comes_out_in_time_order(index: Any) -> None:
    documents = [_document(number) for number in (3, 1, 2)]
    assert index.put(documents).stored == 3
    assert _all(index) == [_document(number) for number in (1, 2, 3)]
    assert list(index.read(START_NS + 2, START_NS + 3)) == [_document(2)], "from is within, to is not"


def test_empty_index_answers(index: Any) -> None:
    assert (_all(index), index.newest_revision(), index.put([]).stored) == ([], 0, 0)
    assert index.set_clusters({("a", "b"): "c"}) == 0


def test_the_same_failure_twice_is_one_document_and_the_higher_revision_stays(index: Any) -> None:
    index.put([_document(1), _document(2)])
    index.put([_document(1)])
    index.put([_document(1, Revision=12, Message="newer"), _document(1, Revision=11, Message="older")])
    index.put([_document(1, Revision=9, Message="oldest")])
    assert [one["Message"] for one in _all(index)] == ["newer", "Tool execution exceeded 30s"]
    assert index.newest_revision() == 12


def test_cluster_ids_are_written_back(index: Any) -> None:
    index.put([_document(number) for number in range(5)])
    known = {(_document(n)["TraceId"], _document(n)["SpanId"]): f"c{n % 2}" for n in range(4)}
    assert index.set_clusters({**known, ("no", "such"): "x"}) == 4
    assert [one["ClusterId"] for one in _all(index)] == ["c0", "c1", "c0", "c1", ""]


def test_many_documents_are_read_page_by_page(index: Any) -> None:
    index.put([_document(number) for number in range(2500)])
    assert [one["Timestamp"] for one in _all(index)] == [START_NS + number for number in range(2500)]


def test_odd_texts_survive(index: Any) -> None:
    texts = ["", "🙂" * 50, "line\nbreak", "x" * 1_000_000, "quote ' \" \\"]
    index.put([_document(number, Message=text) for number, text in enumerate(texts)])
    assert [one["Message"] for one in _all(index)] == texts


def test_an_index_that_was_away_catches_up(store: StoreFailures, elastic: ElasticFailures) -> None:
    store.put([_document(number, Revision=10 + number) for number in range(20)])
    assert catch_up(store, elastic).stored == 20
    store.put([_document(3, Revision=90, ClusterId="c9"), _document(77, Revision=91)])
    catch_up(store, elastic)
    catch_up(store, elastic)
    assert _all(elastic) == _all(store)
    assert len(_all(elastic)) == 21


class _HalfWay:
    """An index that takes the newer documents of its first batch and turns the older ones away, as a busy Elasticsearch may."""

    name = "half-way"

    def __init__(self, refuse: frozenset[str] = frozenset(), *, falls: bool = True) -> None:
        self.held: dict[str, dict[str, Any]] = {}
        self.refuse, self.falls, self.sent = refuse, falls, 0

    def put(self, documents: Any) -> Put:
        self.sent += len(documents)
        rejected = [one for one in documents if one["Message"] in self.refuse]
        newer = documents[len(documents) // 2 :] if self.falls else documents
        self.held |= {one["TraceId"]: dict(one) for one in newer if one not in rejected}
        if self.falls:
            self.falls = False
            raise Unavailable("busy", 1.0)
        return Put(len(documents) - len(rejected), {"mapper_parsing_exception": len(rejected)} if rejected else {})

    def newest_revision(self) -> int:
        return max((int(one["Revision"]) for one in self.held.values()), default=0)

    def read(self, from_ns: int, to_ns: int) -> Iterator[dict[str, Any]]:
        yield from (one for one in self.held.values() if from_ns <= one["Timestamp"] < to_ns)

    def set_clusters(self, clusters: Any) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


def test_older_documents_that_were_turned_away_are_sent_again(store: StoreFailures) -> None:
    store.put([_document(number, Revision=10 + number) for number in range(20)])
    target = _HalfWay()
    with pytest.raises(Unavailable):
        catch_up(store, target)
    assert target.newest_revision() == 29, "the newest is in, older ones are not"
    catch_up(store, target)
    assert len(target.held) == 20
    sent = target.sent
    assert catch_up(store, target).stored == 0
    assert target.sent == sent, "what is in is not sent for ever"


def test_refused_documents_are_counted_kept_and_sent_again_when_asked(store: StoreFailures) -> None:
    store.put([_document(number, Revision=10 + number, Message=f"m{number}") for number in range(5)])
    target = _HalfWay(frozenset({"m1"}), falls=False)
    target.name = "refusing"
    assert catch_up(store, target).rejected == {"mapper_parsing_exception": 1}
    assert catch_up(store, target, again=True).rejected == {"mapper_parsing_exception": 1}
    assert (len(_all(store)), catch_up(store, target).rejected) == (5, {})
    target.refuse = frozenset()  # somebody mended the mapping
    assert catch_up(store, target, again=True).rejected == {}
    assert len(target.held) == 5
    assert catch_up(store, target, again=True).stored == 0


def test_nobody_there_is_unavailable_and_nothing_is_lost(store: StoreFailures) -> None:
    store.put([_document(1)])
    away = ElasticFailures("http://user:secret@127.0.0.1:1", wait=lambda _: None)
    with pytest.raises(Unavailable) as caught:
        catch_up(store, away)
    assert "secret" not in str(caught.value)
    assert len(_all(store)) == 1


class _Moody(BaseHTTPRequestHandler):
    """Answers as Elasticsearch does when it refuses: 401 to everyone, or 429 to the first bulk items."""

    status = 401
    turned_away = 0

    def do_PUT(self) -> None:
        self._answer()

    do_GET = do_POST = do_HEAD = do_PUT

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer, status = (
            b'{"error": {"type": "security_exception", "reason": "token expired"}, "status": 401}',
            type(self).status,
        )
        if status == 200:
            answer = b'{"acknowledged": true}'
            if self.path.startswith("/_bulk"):
                type(self).turned_away += 1
                code = 429 if type(self).turned_away < 3 else 201
                names = [
                    line.split(b'"_id":"')[1].split(b'"')[0].decode() for line in body.splitlines() if b'"_id"' in line
                ]
                items = ",".join(f'{{"create": {{"_id": "{name}", "status": {code}}}}}' for name in names)
                answer = f'{{"errors": true, "items": [{items}]}}'.encode()
        self.send_response(status)
        for key, value in (
            ("X-Elastic-Product", "Elasticsearch"),
            ("content-type", "application/json"),
            ("content-length", str(len(answer))),
        ):
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def moody() -> Iterator[str]:
    _Moody.turned_away = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Moody)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_refused_credentials_are_a_setting_to_mend(moody: str) -> None:
    _Moody.status = 401
    with pytest.raises(BadSetting, match="STAGESCOPE_FAILURES"):
        ElasticFailures(moody).put([_document(1)])


def test_turned_away_documents_are_sent_again(moody: str) -> None:
    _Moody.status = 200
    waits: list[float] = []
    assert ElasticFailures(moody, wait=waits.append).put([_document(1), _document(2)]).stored == 2
    assert waits == [1.0, 2.0]


def test_document_and_row_are_each_other() -> None:
    row = _document(7)
    assert from_elastic(to_elastic(row)) == row
    assert nanoseconds(iso(START_NS)) == START_NS
    assert mappings()["properties"]["@timestamp"] == {"type": "date_nanos"}
    assert mappings()["dynamic"] is False


def test_setting_chooses_the_index(store: StoreFailures) -> None:
    assert isinstance(open_index(Settings(), store.store), StoreFailures)
    assert isinstance(open_index(Settings(failures="http://127.0.0.1:9200"), store.store), ElasticFailures)
    with pytest.raises(BadSetting):
        open_index(Settings(failures="elastic"), store.store)
