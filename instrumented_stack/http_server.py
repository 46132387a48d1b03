"""A small HTTP/1.1 server for calls between our own services: a task per request, keep-alive, JSON back. Public faces take a real
server; here every byte of overhead is paid a dozen times per answer. A request that cannot be read is answered and its connection closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from instrumented_stack.http_messages import BODY_LIMIT_BYTES, Cutter, Message, NotUnderstood

Answer = Callable[[Message], Awaitable[tuple[int, bytes]]]
_WORDS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large", 500: "Internal Server Error"}


def refusal(code: str, kind: str, message: str) -> bytes:
    """An error as every service writes it."""
    return json.dumps({"error": {"code": code, "type": kind, "message": message}}).encode()


class _Connection(asyncio.Protocol):
    """One client: its requests are answered one after another."""

    def __init__(self, routes: Mapping[str, Answer], limit_bytes: int, open_now: set[_Connection]) -> None:
        self._routes, self._open, self._limit = routes, open_now, limit_bytes
        self._cutter = Cutter(limit_bytes)
        self._busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._open.discard(self)
        self._transport = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._cutter.add(data)
        if not self._busy:
            self._next()
        elif self._cutter.waiting > self._limit and self._transport is not None:
            self._transport.pause_reading()

    def _next(self) -> None:
        try:
            message = self._cutter.next()
        except NotUnderstood as error:
            self._reply(error.status, refusal("bad_request", "BadRequest", str(error)), False)
            return
        if message is None:
            return
        answer = self._routes.get(message.first.rpartition(" ")[0])
        if answer is None:
            known = ", ".join(self._routes)
            self._reply(404, refusal("not_found", "NotFound", f"nothing is here but {known}"), message.lasts)
            return
        self._busy = True
        task = asyncio.ensure_future(answer(message))
        task.add_done_callback(lambda done: self._answered(done, message.lasts))

    def _answered(self, task: asyncio.Future[tuple[int, bytes]], lasts: bool) -> None:
        self._busy = False
        if task.cancelled():
            self.close()
            return
        error = task.exception()
        if error is None:
            self._reply(*task.result(), lasts)
        else:  # not one of the agent's own errors: a mistake of ours, said and survived
            asyncio.get_running_loop().call_exception_handler({"message": "a service failed", "exception": error})
            self._reply(
                500, refusal("internal_error", type(error).__name__, "the service failed on this request"), lasts
            )
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._next()

    def _reply(self, status: int, body: bytes, lasts: bool) -> None:
        if self._transport is None:
            return
        head = f"HTTP/1.1 {status} {_WORDS.get(status, 'Error')}\r\ncontent-type: application/json\r\n"
        ending = "" if lasts else "connection: close\r\n"
        self._transport.write(f"{head}{ending}content-length: {len(body)}\r\n\r\n".encode() + body)
        if not lasts:
            self._transport.close()


class Service:
    """A listening service. `routes`: "POST /run" and the like to the coroutine that answers with status and JSON."""

    def __init__(self, routes: Mapping[str, Answer], limit_bytes: int = BODY_LIMIT_BYTES) -> None:
        self._routes, self._limit = routes, limit_bytes
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1 (port 0: any free one)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._routes, self._limit, self._open), "127.0.0.1", port, backlog=512
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._open):
            connection.close()
        await self._server.wait_closed()
