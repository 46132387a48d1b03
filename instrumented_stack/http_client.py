"""A small HTTP/1.1 client for calls between our own services on loopback: keep-alive, one body in, one body out.
Whoever needs more (TLS, redirects, proxies) takes a real client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import urlsplit

LIMIT_BYTES = 32 << 20


class Client:
    """Keeps idle connections by address. Raises ConnectionError when the far side is gone or speaks no HTTP/1.1."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s
        self._idle: defaultdict[tuple[str, int], list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = defaultdict(
            list
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """(status, body). A connection that went stale while idle is replaced once."""
        parts = urlsplit(url)
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        lines = [f"POST {parts.path or '/'} HTTP/1.1", f"host: {parts.netloc}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        sent = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
        async with asyncio.timeout(self._timeout_s):
            while self._idle[address]:
                try:
                    return await self._exchange(address, self._idle[address].pop(), sent)
                except (ConnectionError, asyncio.IncompleteReadError):
                    continue
            try:
                fresh = await asyncio.open_connection(*address, limit=1 << 20)
                return await self._exchange(address, fresh, sent)
            except asyncio.IncompleteReadError as error:
                raise ConnectionError(f"{url}: the answer broke off") from error

    async def _exchange(
        self, address: tuple[str, int], pair: tuple[asyncio.StreamReader, asyncio.StreamWriter], sent: bytes
    ) -> tuple[int, bytes]:
        reader, writer = pair
        done = False
        try:
            writer.write(sent)
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            fields = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])
            }
            size = int(fields.get(b"content-length", b"0"))
            if size > LIMIT_BYTES or not head[0].startswith(b"HTTP/1.1 "):
                raise ConnectionError("not an answer that this client understands")
            body = await reader.readexactly(size)
            done = fields.get(b"connection", b"").lower() != b"close"
            return int(head[0].split()[1]), body
        finally:
            if done:
                self._idle[address].append(pair)
            else:
                writer.close()

    async def close(self) -> None:
        for pairs in self._idle.values():
            for _, writer in pairs:
                writer.close()
        self._idle.clear()
