"""ClickHouse's HTTP interface over the embedded engine, so that any ClickHouse client can read what one process owns.

Must stay true: only the owner, who knows the password in `endpoint.json` (mode 0600), may write; everyone else only reads.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ingest import native
from ingest.clickhouse_http import COMPRESSORS, accepted, body, content_type, credentials, shaped
from ingest.engine import Answer, Ask, Engine, EngineError
from ingest.errors import BadSetting, Unavailable
from ingest.store import DATABASE, Store

OWNER = "owner"
MAX_READER_BODY, MAX_OWNER_BODY = 1 << 20, 1 << 30
READERS, OWNERS, WAITING = 8, 16, 64
STREAM_LIMIT_S = 600.0
NOT_SETTINGS = frozenset(
    "query database default_format user password quota_key session_id session_timeout session_check query_id buffer_size "
    "wait_end_of_query client_protocol_version role send_progress_in_http_headers http_headers_progress_interval_ms "
    "enable_http_compression compress decompress stacktrace add_http_cors_header".split()
)


class _Gate:
    """How many queries may run at once; whoever finds `WAITING` others in front is turned away."""

    def __init__(self, at_once: int) -> None:
        self._running = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def enter(self) -> None:
        if self._waiting >= WAITING:
            raise EngineError(202, "Too many simultaneous queries. (TOO_MANY_SIMULTANEOUS_QUERIES)")
        self._waiting += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._running.release()


class _Reply(Response):
    """An Answer on its way out, compressed as asked. An error after the first bytes cuts the connection, so no half result looks whole."""

    def __init__(
        self, answer: Answer, started: tuple[bytes | None, Iterator[bytes]], encoding: str, gate: _Gate
    ) -> None:
        super().__init__(None, 200)
        self._answer, (self._first, self._rest), self._encoding, self._gate = answer, started, encoding, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del self.headers["content-length"]
        try:
            async with asyncio.timeout(STREAM_LIMIT_S):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._send_blocks(send)
        except (TimeoutError, EngineError, OSError) as err:
            last = err.body if isinstance(err, EngineError) else b"Code: 159. DB::Exception: the reader is too slow\n"
            with suppress(OSError):
                await send({"type": "http.response.body", "body": last, "more_body": True})
        finally:
            await run_in_threadpool(self._answer.close)
            self._gate.leave()

    async def _send_blocks(self, send: Send) -> None:
        squeeze = COMPRESSORS[self._encoding]() if self._encoding else None
        body = squeeze.begin() if squeeze is not None and hasattr(squeeze, "begin") else b""
        block = self._first
        while block is not None:
            body += squeeze.compress(block) if squeeze is not None else block
            block = await run_in_threadpool(next, self._rest, None)
            if block is not None:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                body = b""
        await send({"type": "http.response.body", "body": body + (squeeze.flush() if squeeze is not None else b"")})


class _Door:
    """The routes, for one engine and one owner's password."""

    def __init__(self, engine: Engine, password: str) -> None:
        self._engine, self._password = engine, password
        self._owners, self._readers = _Gate(OWNERS), _Gate(READERS)

    async def ping(self, request: Request) -> Response:
        return PlainTextResponse("Ok.\n")

    async def query(self, request: Request) -> Response:
        query_id = request.query_params.get("query_id") or str(uuid.uuid4())
        try:
            reply = await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except EngineError as err:
            told = native.frame(err.body) if request.query_params.get("compress") == "1" else err.body
            reply = PlainTextResponse(told, err.status, {"X-ClickHouse-Exception-Code": str(err.code)})
        reply.headers["X-ClickHouse-Query-Id"] = query_id
        reply.headers["X-ClickHouse-Timezone"] = self._engine.timezone
        reply.headers["X-ClickHouse-Server-Display-Name"] = "stagescope"
        return reply

    async def _answer(self, request: Request) -> Response:
        params = request.query_params
        owner = self._owner(request)
        sent = await body(request, MAX_OWNER_BODY if owner else MAX_READER_BODY)
        text = b"\n".join(part for part in (params.get("query", "").encode(), sent) if part)
        if not text.strip():
            return PlainTextResponse("Ok.\n")
        ask = Ask(
            text,
            owner and request.method != "GET",
            params.get("database") or request.headers.get("x-clickhouse-database") or DATABASE,
            params.get("default_format") or request.headers.get("x-clickhouse-format") or "TabSeparated",
            {
                name: value
                for name, value in params.items()
                if name not in NOT_SETTINGS and not name.startswith("param_")
            },
            {name[6:]: value for name, value in params.items() if name.startswith("param_")},
        )
        gate = self._owners if owner else self._readers
        await gate.enter()
        return await self._start(ask, gate, request)

    async def _start(self, ask: Ask, gate: _Gate, request: Request) -> Response:
        encoding = accepted(request)
        answer: Answer | None = None
        handed_on = False
        try:
            answer = await run_in_threadpool(self._engine.ask, ask)
            blocks = shaped(request, answer.fmt, answer.blocks())
            first = await run_in_threadpool(next, blocks, None)
            reply = _Reply(answer, (first, blocks), encoding, gate)
            handed_on = True
        finally:
            if not handed_on:
                gate.leave()
                if answer is not None:
                    await run_in_threadpool(answer.close)
        if answer.fmt:
            reply.headers["X-ClickHouse-Format"] = answer.fmt
            reply.headers["Content-Type"] = content_type(answer.fmt)
        if encoding:
            reply.headers["Content-Encoding"] = encoding
        reply.headers["X-ClickHouse-Summary"] = json.dumps(answer.summary)
        return reply

    def _owner(self, request: Request) -> bool:
        """True for the owner, False for a reader; a wrong owner's password is an error, not a reader."""
        user, password = credentials(request)
        if user != OWNER:
            return False
        if not hmac.compare_digest(password.encode(), self._password.encode()):
            raise EngineError(516, "owner: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)")
        return True


@dataclass(frozen=True, slots=True)
class Served:
    """A running endpoint. `url` is for readers, `owner_url` writes too; `close` stops it and removes its endpoint.json."""

    url: str
    owner_url: str = field(repr=False)
    note: Path
    server: uvicorn.Server
    thread: threading.Thread

    def close(self) -> None:
        self.note.unlink(missing_ok=True)
        self.server.should_exit = True
        self.thread.join(timeout=10)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def app(folder: Path, password: str) -> Starlette:
    """The interface over the embedded store in `folder`, which this process owns."""
    door = _Door(Engine(folder), password)
    return Starlette(
        routes=[Route("/ping", door.ping), Route("/", door.query, methods=["GET", "HEAD", "POST"])],
    )


def serve(store: Store, host: str, port: int, ports: Mapping[str, int] | None = None) -> Served:
    """Serve an embedded `store` in a thread (port 0: any) and leave endpoint.json in its folder; returns when it answers.

    `ports` are the owner's other doors by name, for whoever reads endpoint.json. Raises BadSetting when the port is taken.
    """
    folder = store.location.folder
    if folder is None:
        raise BadSetting(
            "STAGESCOPE_STORE", store.location.dsn, "an embedded store: a server has its own HTTP interface"
        )
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    password = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        app(folder, password), log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="endpoint", daemon=True)
    thread.start()
    local = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    _await_start(server, thread)
    owner_url = f"http://{OWNER}:{password}@{local}:{port}"
    note = _leave_note(folder, {"owner_url": owner_url, "clickhouse_port": port, **(ports or {})})
    return Served(f"http://{local}:{port}", owner_url, note, server, thread)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; the protocol is named so that asyncio turns Nagle's delay off (it costs 40 ms a query)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as err:
        listener.close()
        raise BadSetting("STAGESCOPE_CLICKHOUSE_PORT", port, f"a free port on {host} ({err.strerror})") from err
    return listener


def _await_start(server: uvicorn.Server, thread: threading.Thread) -> None:
    while not server.started:
        thread.join(timeout=0.02)
        if not thread.is_alive():
            raise Unavailable("the ClickHouse HTTP interface did not start")


def _leave_note(folder: Path, about: Mapping[str, object]) -> Path:
    """Write endpoint.json whole or not at all, readable by this user only."""
    note, draft = folder / "endpoint.json", folder / f".endpoint.json.{os.getpid()}"
    draft.unlink(missing_ok=True)
    me = {"pid": os.getpid(), "started": psutil.Process().create_time()}
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({**me, **about}, out)
    draft.replace(note)
    return note
