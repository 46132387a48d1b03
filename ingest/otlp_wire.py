"""The protobuf wire format, as far as it takes to find the fields of a message and to write one."""

from __future__ import annotations

from collections.abc import Iterator

LENGTH_DELIMITED = 2


class Careful(Exception):
    """The bytes are not laid out in the simple way that we look for; a real parser must read them."""


def fields(body: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, first byte of the tag, first byte, end) of the fields of a message of messages and texts.

    Raises Careful for any other kind of field and for numbers over 15, Careful or IndexError for damaged bytes.
    """
    while start < end:
        tag, size, first = body[start], body[start + 1], start
        if tag & 7 != LENGTH_DELIMITED or tag > 127:
            raise Careful
        start += 2
        if size > 127:
            size, start = long_size(body, start, size & 127, 7)
        yield tag >> 3, first, start, start + size
        start += size
    if start != end:
        raise Careful


def long_size(body: bytes, at: int, size: int, shift: int = 14) -> tuple[int, int]:
    """The rest of a number whose first `shift` bits are `size`, and where it ends."""
    while True:
        more = body[at]
        at += 1
        size |= (more & 127) << shift
        if more < 128:
            return size, at
        shift += 7


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field (number up to 15)."""
    size, head = len(value), bytearray([number << 3 | LENGTH_DELIMITED])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + value
