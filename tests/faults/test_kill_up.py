"""kill -9 of the embedded process: what was answered 200 is stored once, and the next start is not hindered."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from ingest.store import Store
from tests.faults.load import counted, spans
from tests.faults.owner_process import up
from tests.faults.processes import Process

KILLS, SENDERS = 3, 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Client:
    """An exporter: sends request after request, repeats what was not answered 200, remembers what was."""

    def __init__(self, first: int) -> None:
        self.acknowledged: set[int] = set()
        self.unanswered: int | None = None
        self._next = first

    def send(self, port: int, until: threading.Event) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            while not until.is_set():
                number = self.unanswered or self._next
                self.unanswered, self._next = number, max(self._next, number + 1)
                try:
                    answer = http.post("/v1/traces", content=self._body(number), headers=PROTOBUF)
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    self.acknowledged.add(number)
                    self.unanswered = None

    def _body(self, number: int) -> bytes:
        if not hasattr(self, "_bodies"):
            self._bodies: dict[int, bytes] = {}
        return self._bodies.setdefault(number, spans(number))


def test_what_was_answered_200_survives(tmp_path: Path) -> None:
    folder, dice = str(tmp_path / "store"), random.Random(3)
    clients = [Client(100_000 * (index + 1)) for index in range(SENDERS)]
    for _ in range(KILLS):
        process = Process(up, folder)
        port, stopped = process.ready(), threading.Event()
        senders = [threading.Thread(target=client.send, args=(port, stopped)) for client in clients]
        for sender in senders:
            sender.start()
        enough, finish = sum(len(client.acknowledged) for client in clients) + SENDERS, time.monotonic() + 120
        while sum(len(client.acknowledged) for client in clients) < enough and time.monotonic() < finish:
            stopped.wait(0.01)
        stopped.wait(dice.uniform(0.0, 0.5))
        process.kill()
        for sender in senders:
            sender.join()
        stopped.set()
    acknowledged = set().union(*(client.acknowledged for client in clients))
    unanswered = {client.unanswered for client in clients if client.unanswered}
    assert len(acknowledged) >= KILLS * SENDERS
    with Store.open(folder) as store:
        assert store.embedded, "a note left by a killed process is taken for a running one"
        frame = store.read(
            "SELECT reinterpretAsUInt128(reverse(unhex(TraceId))) AS number, count() AS n FROM otel_traces GROUP BY 1"
        )
        stored = {int(number): int(count) for number, count in zip(frame["number"], frame["n"], strict=True)}
        assert acknowledged <= stored.keys()
        assert stored.keys() <= acknowledged | unanswered
        assert set(stored.values()) == {20}
        assert counted(store, "otel_traces") == 20 * len(stored)
