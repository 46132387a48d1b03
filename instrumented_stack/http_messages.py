"""HTTP/1.1 messages between our own services on loopback: a body with a content-length, nothing else. What is not understood is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEAD_LIMIT_BYTES = 32_768
BODY_LIMIT_BYTES = 32 << 20


class NotUnderstood(ValueError):
    """Bytes that are no message of ours; `status` is what a server answers."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Message:
    """One request or answer: its first line, its fields by lower-case name, its body."""

    first: str
    fields: Mapping[str, str]
    body: bytes

    @property
    def lasts(self) -> bool:
        """Whether the connection stays open after this message."""
        return self.fields.get("connection", "").lower() != "close" and "HTTP/1.1" in self.first


class Cutter:
    """Cuts one connection's bytes into messages. Never holds more than one head, one body and what came in the same read."""

    def __init__(self, limit_bytes: int = BODY_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._held = bytearray()
        self._head: tuple[str, dict[str, str], int] | None = None

    @property
    def waiting(self) -> int:
        """Bytes that came and are in no message yet."""
        return len(self._held)

    def add(self, data: bytes) -> None:
        self._held += data

    def next(self) -> Message | None:
        """The next whole message, or None until more bytes come. Raises NotUnderstood."""
        if self._head is None:
            end = self._held.find(b"\r\n\r\n")
            if end < 0 and len(self._held) <= HEAD_LIMIT_BYTES:
                return None
            if end < 0 or end > HEAD_LIMIT_BYTES:
                raise NotUnderstood(431, f"the head is longer than {HEAD_LIMIT_BYTES} bytes")
            self._head = self._read(bytes(self._held[:end]).decode("latin-1"))
            del self._held[: end + 4]
        first, fields, size = self._head
        if len(self._held) < size:
            return None
        body = bytes(self._held[:size])
        del self._held[:size]
        self._head = None
        return Message(first, fields, body)

    def _read(self, head: str) -> tuple[str, dict[str, str], int]:
        first, *lines = head.split("\r\n")
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise NotUnderstood(400, "a line of the head has no colon")
            key, value = name.lower(), value.strip()
            if key == "content-length" and fields.get(key, value) != value:
                raise NotUnderstood(400, "two lengths contradict each other")
            fields[key] = value
        if "transfer-encoding" in fields:
            raise NotUnderstood(501, "bodies need a content-length here")
        size = fields.get("content-length", "0")
        if not (size.isascii() and size.isdigit()):
            raise NotUnderstood(400, "the content-length is no number")
        if len(size) > 12 or int(size) > self._limit:
            raise NotUnderstood(413, f"the body is larger than {self._limit} bytes")
        return first, fields, int(size)
