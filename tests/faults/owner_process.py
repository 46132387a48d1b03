"""What `up` runs: an embedded store served over HTTP, with or without a receiver before it."""

from __future__ import annotations

from multiprocessing.connection import Connection

from ingest import endpoint
from ingest.meter import Meter
from ingest.pipeline import start_embedded
from ingest.receiver import Receiver
from ingest.settings import Settings
from ingest.store import Store
from tests.faults.processes import stop_when_told


def store_owner(told: Connection, folder: str, port: int) -> None:
    """An embedded store served over HTTP: stands in for a ClickHouse server."""
    stop = stop_when_told(told)
    with Store.open(folder) as store, endpoint.serve(store, "127.0.0.1", port) as served:
        told.send(served.url)
        stop.wait()


def up(told: Connection, folder: str) -> None:
    """Receiver, memory log, pipeline and endpoint in one process, on any ports."""
    stop = stop_when_told(told)
    with Store.open(folder) as store, endpoint.serve(store, "127.0.0.1", 0):
        meter = Meter()
        embedded = start_embedded(store, meter)
        with Receiver(Settings(otlp_grpc_port=0, otlp_http_port=0), embedded.sink, meter) as receiver:
            told.send(receiver.http_port)
            stop.wait()
        embedded.stop()
