"""A request body as it was before compression, never larger than allowed: a bomb is refused while it inflates."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import zstandard

from ingest.errors import BadInput

STEP = 256 * 1024
Grow = Callable[[int], None]  # told of every step's bytes before the next; may raise


class TooLarge(BadInput):
    """The body is larger than the limit; HTTP answers 413, gRPC RESOURCE_EXHAUSTED."""

    def __init__(self, most_bytes: int, what: str) -> None:
        super().__init__("too-large", f"the request body is larger than {most_bytes} bytes {what}")


class UnknownEncoding(BadInput):
    """A content type or content encoding that we do not read; HTTP answers 415."""

    def __init__(self, message: str) -> None:
        super().__init__("bad-encoding", message)


def inflate(body: bytes, encoding: str, most_bytes: int, grow: Grow) -> bytes:
    """`body` without its content-encoding (gzip, deflate, zstd, identity). Raises TooLarge, UnknownEncoding, BadInput."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        if len(body) > most_bytes:
            raise TooLarge(most_bytes, "after decompression")
        return body
    if name in ("gzip", "x-gzip"):
        return _zlib(body, 31, most_bytes, grow)
    if name == "deflate":
        return _zlib(body, 15 if body[:1] and body[0] & 0x0F == 8 else -15, most_bytes, grow)
    if name == "zstd":
        return _zstd(body, most_bytes, grow)
    raise UnknownEncoding(f"content-encoding {encoding!r} is none of gzip, deflate, zstd, identity")


def _zlib(body: bytes, window_bits: int, most_bytes: int, grow: Grow) -> bytes:
    parts, size, rest = [], 0, body
    try:
        while rest:
            engine = zlib.decompressobj(window_bits)
            while not engine.eof:
                part = engine.decompress(rest, STEP)
                if not part and not engine.unconsumed_tail and not engine.eof:
                    raise BadInput("bad-compression", "the compressed body ends too early")
                size += len(part)
                if size > most_bytes:
                    raise TooLarge(most_bytes, "after decompression")
                grow(len(part))
                parts.append(part)
                rest = engine.unconsumed_tail
            rest = engine.unused_data
    except zlib.error as err:
        raise BadInput("bad-compression", f"the body does not decompress: {err}") from err
    return b"".join(parts)


def _zstd(body: bytes, most_bytes: int, grow: Grow) -> bytes:
    parts, size = [], 0
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(body, read_across_frames=True) as reader:
            while part := reader.read(STEP):
                size += len(part)
                if size > most_bytes:
                    raise TooLarge(most_bytes, "after decompression")
                grow(len(part))
                parts.append(part)
    except zstandard.ZstdError as err:
        raise BadInput("bad-compression", f"the body does not decompress: {err}") from err
    if body and not parts:
        raise BadInput("bad-compression", "the compressed body ends too early")
    return b"".join(parts)
