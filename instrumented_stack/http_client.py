"""A small HTTP/1.1 client for calls between our own services on loopback: keep-alive, one body in, one body out.
Whoever needs more (TLS, redirects, proxies) takes a real client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from instrumented_stack.http_messages import Cutter, Message, NotUnderstood


class _Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    def __init__(self) -> None:
        self._cutter = Cutter()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Message] | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the answer broke off"))

    def data_received(self, data: bytes) -> None:
        self._cutter.add(data)
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked
            return
        try:
            message = self._cutter.next()
        except NotUnderstood as error:
            self._answer.set_exception(ConnectionError(f"not an answer that this client understands: {error}"))
            return
        if message is not None:
            self._answer.set_result(message)

    async def exchange(self, sent: bytes) -> Message:
        """One request, one answer. Closes itself unless the answer says that it lasts."""
        if self._transport is None:
            raise ConnectionResetError("the connection is gone")
        self._answer = asyncio.get_running_loop().create_future()
        lasts = False
        try:
            self._transport.write(sent)
            message = await self._answer
            if not (message.first.startswith("HTTP/1.") and message.first[9:12].isdigit()):
                raise ConnectionError("not an answer that this client understands")
            lasts = message.lasts
            return message
        finally:
            self._answer = None
            if not lasts:
                self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Client:
    """Keeps idle connections by address. Raises ConnectionError when the far side is gone or speaks no HTTP/1.1, TimeoutError after `timeout_s`."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s
        self._idle: defaultdict[tuple[str, int], list[_Connection]] = defaultdict(list)
        self._addresses: dict[str, tuple[tuple[str, int], str]] = {}

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """(status, body). A connection that went stale while idle is replaced once."""
        address, head = self._address(url)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        sent = f"{head}{lines}content-length: {len(body)}\r\n\r\n".encode("latin-1", "replace") + body
        async with asyncio.timeout(self._timeout_s):
            while self._idle[address]:
                connection = self._idle[address].pop()
                if not connection.alive:
                    continue
                try:
                    return await self._exchange(address, connection, sent)
                except ConnectionResetError:
                    continue
            _, fresh = await asyncio.get_running_loop().create_connection(_Connection, *address)
            return await self._exchange(address, fresh, sent)

    async def _exchange(self, address: tuple[str, int], connection: _Connection, sent: bytes) -> tuple[int, bytes]:
        message = await connection.exchange(sent)
        if connection.alive:
            self._idle[address].append(connection)
        return int(message.first[9:12]), message.body

    def _address(self, url: str) -> tuple[tuple[str, int], str]:
        """Where `url` is, and the head of a POST to it; worked out once."""
        if url not in self._addresses:
            parts = urlsplit(url)
            head = f"POST {parts.path or '/'} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            self._addresses[url] = ((parts.hostname or "127.0.0.1", parts.port or 80), head)
        return self._addresses[url]

    def idle(self, url: str) -> list[object]:
        """The connections to where `url` is that wait for the next request."""
        return list(self._idle[self._address(url)[0]])

    async def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
