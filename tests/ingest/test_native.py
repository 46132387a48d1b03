"""Frames and Native blocks of ClickHouse's native protocol over HTTP, as its Go client (the Collector's exporter) speaks it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import httpx
import lz4.block
import pytest
import zstandard
from clickhouse_cityhash.cityhash import CityHash128

from ingest import endpoint, native
from ingest.endpoint import Served
from ingest.engine import EngineError
from ingest.store import Store

ASK = {"default_format": "Native", "client_protocol_version": "54460"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Store.open(str(tmp_path_factory.mktemp("native"))) as store:
        store.command("CREATE TABLE t (a UInt64, m Map(LowCardinality(String), String)) ENGINE = MergeTree ORDER BY a")
        with endpoint.serve(store, "127.0.0.1", 0) as running:
            yield running


def framed(data: bytes, method: int, packed: bytes) -> bytes:
    tail = struct.pack("<BII", method, len(packed) + 9, len(data)) + packed
    return CityHash128(tail).to_bytes(16, "big")[7::-1] + CityHash128(tail).to_bytes(16, "big")[:7:-1] + tail


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 21) + 7])
def test_frames_there_and_back(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    assert native.unframe(native.frame(data), size) == data


def test_every_method_is_read_and_every_wrong_frame_refused() -> None:
    data = b"abc" * 100
    good = framed(data, native.LZ4, lz4.block.compress(data, store_size=False))
    assert native.unframe(good, 300) == data
    assert (
        native.unframe(framed(data, native.ZSTD, zstandard.compress(data)) + framed(b"x", native.NONE, b"x"), 301)
        == data + b"x"
    )
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    for bad, limit, code in (
        (flipped, 300, 40),
        (good[:-1], 300, 40),
        (good[:20], 300, 354),
        (good, 299, 307),
        (framed(data, native.LZ4, b"\xff\xff\xff"), 300, 354),
        (framed(data, native.NONE, b"short"), 300, 354),
        (framed(data, 0x77, data), 300, 432),
    ):
        with pytest.raises(EngineError) as refused:
            native.unframe(bad, limit)
        assert refused.value.code == code


def test_blocks_get_their_head_and_flags(served: Served) -> None:
    answer = httpx.post(served.url, params={**ASK, "query": "SELECT 'x' AS s, toUInt32(7) AS n"})
    assert answer.content == native.BLOCK_INFO + b"\x02\x01\x01s\x06String\x00\x01x\x01n\x06UInt32\x00\x07\x00\x00\x00"


@pytest.mark.parametrize(
    "values",
    [
        "number, toString(number), toFloat32(number), toDecimal64(number, 2), toFixedString('ab', 3), now64(9), generateUUIDv4()",
        "map('a', number), [[number], []], CAST(map('k', 'v'), 'Map(LowCardinality(String), String)'), toLowCardinality(toString(number % 3))",
        "if(number % 2, NULL, number), tuple(number, 'x'), CAST(('a', 1), 'Tuple(name String, `odd one` UInt8)'), 'b'::Enum8('a,(' = 1, 'b' = 2)",
        "CAST(['x', NULL], 'Array(LowCardinality(Nullable(String)))'), toIPv4('1.2.3.4'), true, CAST([], 'Array(Nothing)'), NULL",
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 70_000])
def test_every_column_is_as_long_as_the_engine_says(served: Served, values: str, rows: int) -> None:
    sql = f"SELECT {values} FROM numbers({rows})"
    plain = httpx.post(served.url, params={"default_format": "Native", "query": sql}, timeout=60).content
    whole = httpx.post(served.url, params={**ASK, "query": sql, "compress": "1"}, timeout=60)
    blocks = native.unframe(whole.content, 1 << 30)
    columns = int.from_bytes(plain[:1])
    count = blocks.count(native.BLOCK_INFO)
    assert len(blocks) == len(plain) + count * (len(native.BLOCK_INFO) + columns)
    assert native.unframe(native.frame(native.versioned(plain)), 1 << 30).count(native.BLOCK_INFO) == count


def test_a_type_only_the_engine_can_measure_is_refused_in_frames(served: Served) -> None:
    answer = httpx.post(served.url, params={**ASK, "compress": "1", "query": "SELECT sumState(toUInt64(1))"})
    assert answer.status_code == 501
    assert b"AggregateFunction" in native.unframe(answer.content, 1 << 20)


def test_an_insert_in_frames_as_the_collector_sends_it(served: Served) -> None:
    read = {
        "query": "SELECT number AS a, CAST(map('k', 'v'), 'Map(LowCardinality(String), String)') AS m FROM numbers(1000)"
    }
    rows = httpx.post(served.url, params={"default_format": "Native", **read}).content
    write = {
        "query": 'INSERT INTO "stagescope"."t" (\n a,\n m\n) FORMAT Native',
        "decompress": "1",
        "compress": "1",
        "async_insert": "true",
    }
    sent = httpx.post(served.owner_url, params={**ASK, **write}, content=native.frame(rows))
    assert sent.status_code == 200, sent.text
    assert (
        httpx.get(served.url, params={"query": "SELECT count(), sum(a), any(m['k']) FROM t"}).text
        == "1000\t499500\tv\n"
    )
    torn = httpx.post(served.owner_url, params={**ASK, **write}, content=native.frame(rows)[:-1])
    assert b"checksum" in native.unframe(torn.content, 1 << 20)
