"""How ClickHouse's HTTP interface carries bodies, credentials and compression. Nothing is inflated past a stated limit."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lz4.frame
import zstandard
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from ingest import native
from ingest.engine import EngineError

COMPRESSORS: Mapping[str, Callable[[], Any]] = {
    "lz4": lz4.frame.LZ4FrameCompressor,
    "zstd": lambda: zstandard.ZstdCompressor(level=1).compressobj(),
    "gzip": lambda: zlib.compressobj(1, zlib.DEFLATED, 31),
    "deflate": lambda: zlib.compressobj(1),
}


async def body(request: Request, limit: int) -> bytes:
    encoding = request.headers.get("content-encoding", "").lower()
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise EngineError(307, f"the request body is over {limit} bytes. (TOO_MANY_BYTES)")
    sent = bytes(data)
    if encoding and encoding != "identity":
        sent = await run_in_threadpool(_inflate, sent, encoding, limit)
    if request.query_params.get("decompress") == "1":
        sent = await run_in_threadpool(native.unframe, sent, limit)
    return sent


def _inflate(data: bytes, encoding: str, limit: int) -> bytes:
    """Undo `encoding`, but never into more than `limit` bytes."""
    try:
        if encoding in ("gzip", "deflate"):
            out = zlib.decompressobj(47).decompress(data, limit + 1)
        elif encoding == "zstd":
            out = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(limit + 1)
        elif encoding == "lz4":
            out = lz4.frame.LZ4FrameDecompressor().decompress(data, limit + 1)
        else:
            raise EngineError(
                48, f"content encoding {encoding} is not served: use gzip, zstd or lz4. (NOT_IMPLEMENTED)"
            )
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as err:
        raise EngineError(354, f"the body is not {encoding}: {err}. (CANNOT_DECOMPRESS)") from err
    if len(out) > limit:
        raise EngineError(307, f"the request body is over {limit} bytes once decompressed. (TOO_MANY_BYTES)")
    return bytes(out)


def credentials(request: Request) -> tuple[str, str]:
    """User and password as ClickHouse takes them: X-ClickHouse headers, basic, or parameters."""
    headers, params = request.headers, request.query_params
    if "x-clickhouse-user" in headers:
        return headers["x-clickhouse-user"], headers.get("x-clickhouse-key", "")
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as err:
            raise EngineError(516, "the Authorization header is not base64 text. (AUTHENTICATION_FAILED)") from err
        return user, password
    return params.get("user", ""), params.get("password", "")


def accepted(request: Request) -> str:
    """The encoding to answer in: only when asked for by enable_http_compression=1, as ClickHouse does."""
    if request.query_params.get("enable_http_compression", "0") not in ("1", "true"):
        return ""
    offered = [part.split(";")[0].strip() for part in request.headers.get("accept-encoding", "").lower().split(",")]
    return next((name for name in offered if name in COMPRESSORS), "")


def shaped(request: Request, fmt: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The answer's blocks as the client wants them: Native for its protocol version, then in frames (compress=1).

    A client of an older version asks first whether its version is served; it is not, and it reads the plain format (faster).
    """
    version = request.query_params.get("client_protocol_version", "")
    if fmt.lower() == "native" and version.isdigit() and int(version) >= native.FLAGGED_VERSION:
        blocks = map(native.versioned, blocks)
    return map(native.frame, blocks) if request.query_params.get("compress") == "1" else blocks


def content_type(fmt: str) -> str:
    lower = fmt.lower()
    if lower.startswith("json"):
        return "application/x-ndjson; charset=UTF-8" if lower.endswith("eachrow") else "application/json; charset=UTF-8"
    if lower.startswith(("tab", "tsv")):
        return "text/tab-separated-values; charset=UTF-8"
    if lower.startswith("csv"):
        return "text/csv; charset=UTF-8"
    return (
        "text/plain; charset=UTF-8"
        if lower in ("pretty", "vertical", "values", "xml", "markdown")
        else "application/octet-stream"
    )
