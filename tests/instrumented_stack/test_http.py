"""The inner HTTP: what is no message of ours is answered or refused, never waited for; a failing service says so and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instrumented_stack.http_client import Client
from instrumented_stack.http_messages import HEAD_LIMIT_BYTES, Cutter, Message, NotUnderstood
from instrumented_stack.http_server import Service

LIMIT = 4_096


async def echo(message: Message) -> tuple[int, bytes]:
    return 200, message.body


async def broken(_: Message) -> tuple[int, bytes]:
    raise KeyError("a mistake")


def served(scene: Callable[[Service], Awaitable[None]]) -> list[str]:
    """Play a scene against a service with `/echo` and `/broken`; what its loop had to complain about."""
    complaints: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about["message"]))
        service = Service({"POST /echo": echo, "POST /broken": broken}, LIMIT)
        await service.start()
        await scene(service)
        await service.stop()

    asyncio.run(main())
    return complaints


async def say(service: Service, raw: bytes, answers: int = 1) -> list[tuple[int, bytes]]:
    """Send bytes as they are; the answers until there are so many or the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    writer.write(raw)
    cutter, out = Cutter(), []
    while len(out) < answers and (data := await asyncio.wait_for(reader.read(65_536), 10)):
        cutter.add(data)
        while (message := cutter.next()) is not None:
            out.append((int(message.first.split()[1]), message.body))
    writer.close()
    return out


def post(path: str, body: bytes, *more: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


REFUSED = [
    (b"GET / HTTP/1.1\r\n\r\n", 404),
    (post("/nowhere", b"x"), 404),
    (b"POST /echo HTTP/1.1\r\nno colon here\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\ncontent-length: \xb2\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
    (b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    (post("/echo", b"x" * (LIMIT + 1)), 413),
    (b"POST /echo HTTP/1.1\r\ncontent-length: " + b"9" * 500 + b"\r\n\r\n", 413),
    (b"POST /echo HTTP/1.1\r\nx: " + b"y" * HEAD_LIMIT_BYTES, 431),
    (b"\x00\xff\r\n\r\n", 404),
]


@pytest.mark.parametrize(("raw", "status"), REFUSED, ids=lambda item: str(item)[:40])
def test_what_is_no_request_is_refused_with_a_reason(raw: bytes, status: int) -> None:
    async def scene(service: Service) -> None:
        ((got, body),) = await say(service, raw)
        assert got == status
        assert set(json.loads(body)["error"]) == {"code", "type", "message"}
        assert await say(service, post("/echo", b"still here")) == [(200, b"still here")]

    assert served(scene) == []


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def scene(service: Service) -> None:
        many = b"".join(post("/echo", str(number).encode()) for number in range(50))
        assert await say(service, many, 50) == [(200, str(number).encode()) for number in range(50)]
        last = post("/echo", b"a") + post("/echo", b"b", "Connection: close") + post("/echo", b"never")
        assert await say(service, last, 3) == [(200, b"a"), (200, b"b")]

    assert served(scene) == []


def test_a_failing_service_says_so_and_goes_on() -> None:
    async def scene(service: Service) -> None:
        client = Client()
        for _ in range(2):
            status, body = await client.post(f"{service.url}/broken", b"{}", {})
            assert (status, json.loads(body)["error"]["type"]) == (500, "KeyError")
        assert await client.post(f"{service.url}/echo", b"x", {"a": "b"}) == (200, b"x")
        await client.close()

    assert served(scene) == ["a service failed"] * 2


def test_the_client_reuses_connections_and_replaces_stale_ones() -> None:
    async def main() -> None:
        client = Client(timeout_s=5)
        seen: set[object] = set()

        async def answer(_: Message) -> tuple[int, bytes]:
            return 200, b"ok"

        first = Service({"POST /a": answer})
        await first.start()
        port = int(first.url.rpartition(":")[2])
        for _ in range(3):
            assert await client.post(f"{first.url}/a", b"", {}) == (200, b"ok")
            seen.update(client.idle(first.url))
        assert len(seen) == 1
        await first.stop()
        with pytest.raises(ConnectionError):
            await client.post(f"{first.url}/a", b"", {})
        again = Service({"POST /a": answer})
        await again.start(port)
        assert await client.post(f"{again.url}/a", b"", {}) == (200, b"ok")
        await client.close()
        await again.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    "reply", [b"SMTP ready\r\n\r\n", b"HTTP/1.1 xyz\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b""]
)
def test_the_client_says_what_it_does_not_understand(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Client(timeout_s=5)
        with pytest.raises(ConnectionError):
            await client.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", b"", {})
        server.close()

    asyncio.run(main())


def test_the_client_does_not_wait_for_ever() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda *_: asyncio.sleep(0), "127.0.0.1", 0)
        with pytest.raises(TimeoutError):
            await Client(timeout_s=0.05).post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", b"", {})
        server.close()

    asyncio.run(main())


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 17))
def test_messages_are_cut_the_same_however_they_arrive(bodies: list[bytes], piece: int) -> None:
    raw = b"".join(post("/echo", body) for body in bodies)
    cutter, got = Cutter(), []
    for at in range(0, len(raw), piece):
        cutter.add(raw[at : at + piece])
        while (message := cutter.next()) is not None:
            got.append(message.body)
    assert got == bodies
    assert cutter.waiting == 0


@given(st.binary(max_size=200))
def test_no_bytes_break_the_cutter(raw: bytes) -> None:
    cutter, status = Cutter(64), 0
    cutter.add(raw)
    try:
        while cutter.next() is not None:
            status = 200
    except NotUnderstood as refused:
        status = refused.status
    assert status in (0, 200, 400, 413, 431, 501)
