"""ClickHouse's compressed frames (compress=1, decompress=1) and Native blocks as clients of its native protocol expect them.

Must stay true: nothing is inflated past a stated limit, and a frame whose checksum is wrong is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import lz4.block
import zstandard
from clickhouse_cityhash.cityhash import CityHash128

from ingest.engine import EngineError

HEAD = struct.Struct("<QQBII")  # checksum (2), method, size with the last 9 bytes of this head, size inflated
LZ4, ZSTD, NONE = 0x82, 0x90, 0x02
PIECE = 1 << 20
FLAGGED_VERSION = 54454  # from here on a flag says before each column whether it is written in an unusual way
# What stands before a block from protocol version 51903 on: "not overflows, no bucket".
BLOCK_INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"
_SIZES = {
    "UInt8": 1, "Int8": 1, "Bool": 1, "Enum8": 1, "UInt16": 2, "Int16": 2, "Date": 2, "Enum16": 2, "UInt32": 4, "Int32": 4,
    "Float32": 4, "Date32": 4, "DateTime": 4, "IPv4": 4, "UInt64": 8, "Int64": 8, "Float64": 8, "DateTime64": 8,
    "UInt128": 16, "Int128": 16, "UUID": 16, "IPv6": 16, "UInt256": 32, "Int256": 32, "Nothing": 1,
}  # fmt: skip
_DECIMALS = ((9, 4), (18, 8), (38, 16), (76, 32))


def frame(data: bytes) -> bytes:
    """`data` as LZ4 frames with checksums, as compress=1 asks for."""
    return b"".join(_framed(data[start : start + PIECE]) for start in range(0, len(data), PIECE))


def _framed(data: bytes) -> bytes:
    packed: bytes = lz4.block.compress(data, store_size=False)
    tail = struct.pack("<BII", LZ4, len(packed) + 9, len(data)) + packed
    checksum: int = CityHash128(tail)
    return struct.pack("<QQ", checksum >> 64, checksum & (1 << 64) - 1) + tail


def unframe(data: bytes, limit: int) -> bytes:
    """Undo decompress=1 frames (LZ4, ZSTD or stored), but never into more than `limit` bytes. Raises EngineError."""
    out, at = bytearray(), 0
    while at < len(data):
        if at + HEAD.size > len(data):
            raise EngineError(354, "the body ends inside a frame's head. (CANNOT_DECOMPRESS)")
        high, low, method, packed, size = HEAD.unpack_from(data, at)
        body = data[at + 16 : at + 16 + packed]
        if packed < 9 or len(body) < packed or CityHash128(body) != high << 64 | low:
            raise EngineError(40, "a frame is cut or its checksum does not match. (CHECKSUM_DOESNT_MATCH)")
        if len(out) + size > limit:
            raise EngineError(307, f"the request body is over {limit} bytes once decompressed. (TOO_MANY_BYTES)")
        out += _inflated(method, body[9:], size)
        at += 16 + packed
    return bytes(out)


def _inflated(method: int, packed: bytes, size: int) -> bytes:
    try:
        if method == LZ4:
            out: bytes = lz4.block.decompress(packed, uncompressed_size=size)
        elif method == ZSTD:
            out = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        elif method == NONE:
            out = packed
        else:
            raise EngineError(432, f"compression method 0x{method:02x} is not served. (UNKNOWN_CODEC)")
    except (lz4.block.LZ4BlockError, zstandard.ZstdError) as err:
        raise EngineError(354, f"a frame cannot be inflated: {err}. (CANNOT_DECOMPRESS)") from err
    if len(out) != size:
        raise EngineError(354, "a frame is not as long as it says. (CANNOT_DECOMPRESS)")
    return out


def versioned(data: bytes) -> bytes:
    """Native blocks of the plain format as a client that names its protocol version expects them: with what stands before a
    block, and a flag before each column. Raises EngineError for column types whose length only the engine knows."""
    out, at = bytearray(), 0
    while at < len(data):
        start, (columns, at) = at, _number(data, at)
        rows, at = _number(data, at)
        out += BLOCK_INFO + data[start:at]
        for _ in range(columns):
            start = at
            _, at = _text(data, at)
            kind, at = _text(data, at)
            out += data[start:at] + b"\x00"
            start, at = at, (_end(kind, rows, data, at + 8 * kind.count("LowCardinality(")) if rows else at)
            out += data[start:at]
    return bytes(out)


def _end(kind: str, rows: int, data: bytes, at: int) -> int:
    """Where the values of `rows` rows end that begin at `at`."""
    name, inner = _parts(kind)
    if name in _SIZES:
        return at + rows * _SIZES[name]
    if name == "String":
        for _ in range(rows):
            size, at = _number(data, at)
            at += size
        return at
    if name in ("FixedString", "Decimal"):
        number = int(inner[0])
        return at + rows * (
            number if name == "FixedString" else next(size for most, size in _DECIMALS if number <= most)
        )
    if name == "Nullable":
        return _end(inner[0], rows, data, at + rows)
    if name in ("Array", "Map"):
        total = int.from_bytes(data[at + 8 * (rows - 1) : at + 8 * rows], "little") if rows else 0
        return _all(inner, total, data, at + 8 * rows)
    if name == "Tuple":
        return _all([re.sub(r"^(?:`[^`]*`|[a-z_]\w*) (?=\w)", "", part) for part in inner], rows, data, at)
    if name == "LowCardinality":
        return _dictionary(inner[0], data, at) if rows else at
    raise EngineError(
        48, f"type {kind} is not served to clients of the native protocol: ask for another format. (NOT_IMPLEMENTED)"
    )


def _all(kinds: list[str], rows: int, data: bytes, at: int) -> int:
    for kind in kinds:
        at = _end(kind, rows, data, at)
    return at


def _dictionary(kind: str, data: bytes, at: int) -> int:
    """Past the keys and the indexes of a LowCardinality column: flags, keys, then 1, 2, 4 or 8 bytes a row."""
    flags, keys = struct.unpack_from("<QQ", data, at)
    name, inner = _parts(kind)
    at = _end(inner[0] if name == "Nullable" else kind, keys, data, at + 16)
    (rows,) = struct.unpack_from("<Q", data, at)
    width: int = 1 << (flags & 0xFF)
    return at + 8 + int(rows) * width


def _parts(kind: str) -> tuple[str, list[str]]:
    """`Map(String, Array(UInt8))` as its name and its arguments."""
    name, _, rest = kind.partition("(")
    return name, list(_arguments(rest.removesuffix(")")))


def _arguments(text: str) -> Iterator[str]:
    depth, start, quoted = 0, 0, False
    for at, sign in enumerate(text):
        quoted ^= sign == "'"
        if not quoted:
            depth += (sign == "(") - (sign == ")")
            if sign == "," and depth == 0:
                yield text[start:at].strip()
                start = at + 1
    if text:
        yield text[start:].strip()


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A LEB128 number at `at`, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    size, at = _number(data, at)
    return data[at : at + size].decode(), at + size
