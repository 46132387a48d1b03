"""`stagescope up`: one process that owns an embedded store, with the doors in, the ClickHouse interface out, and two children.

Must stay true: whatever ends this process, what was answered with success is in the store and no child stays behind.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingest import endpoint, scrape
from ingest.endpoint import Served
from ingest.errors import BadSetting, StagescopeError, Unavailable
from ingest.meter import Meter
from ingest.pipeline import Embedded, start_embedded
from ingest.receiver import Receiver, options
from ingest.settings import Settings
from ingest.store import DATABASE, Store, locate, running_endpoint
from ui.children import Child
from ui.command import DONE
from ui.loops import building
from ui.pages_server import must_be_free

LOOK_EVERY_S = 0.5
DOORS = ("otlp_http_port", "otlp_grpc_port", "clickhouse_port")


@dataclass(frozen=True, slots=True)
class Node:
    """A running `up`: addresses for people and programs, and what must stay alive."""

    folder: Path
    store: Store
    otlp_http: str
    otlp_grpc: str
    clickhouse: str
    pages: str
    served: Served
    embedded: Embedded
    builder: threading.Thread
    children: tuple[Child, ...]

    def wait(self, stop: threading.Event) -> None:
        """Until `stop` is set; mends children meanwhile. Raises StagescopeError when one of our own threads is gone."""
        while not stop.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Start dead children again. Raises StagescopeError when one of our own threads is gone."""
        for thread in (self.embedded.thread, self.served.thread, self.builder):
            if not thread.is_alive():
                raise StagescopeError(f"{thread.name} ended by itself; the reason stands above")
        for child in self.children:
            child.mend()

    def addresses(self) -> Sequence[tuple[str, str]]:
        """What to tell a person."""
        return [
            *([("pages", self.pages)] if self.pages else []),
            ("OTLP/HTTP", self.otlp_http),
            ("OTLP/gRPC", self.otlp_grpc),
            ("ClickHouse SQL", f"{self.clickhouse} (read-only)"),
            ("data", str(self.folder)),
        ]


@contextmanager
def node(settings: Settings, *, pages: bool = True, watch: Sequence[str] | None = ()) -> Iterator[Node]:
    """Everything started, in an order that leaves nothing half done; stopped in reverse. Raises BadSetting, Unavailable.

    `watch` are more words for the watching child; None leaves it out.
    """
    folder = _own_folder(settings)
    for name in (*DOORS, *(["ui_port"] if pages else [])):
        must_be_free(settings.host, getattr(settings, name), f"STAGESCOPE_{name.upper()}")
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(settings.store))
        ports = {"otlp_http_port": settings.otlp_http_port, "otlp_grpc_port": settings.otlp_grpc_port}
        ports |= {"ui_port": settings.ui_port} if pages else {}
        served = stack.enter_context(endpoint.serve(store, settings.host, settings.clickhouse_port, ports))
        meter = Meter()
        embedded = start_embedded(store, meter, options(settings))
        stack.callback(embedded.stop)
        receiver = stack.enter_context(Receiver(settings, embedded.sink, meter))
        thread = _threads(settings, store, embedded, stack)
        children = _children(settings, pages=pages, watch=watch)
        for child in children:
            child.start()
            stack.callback(child.stop)
        local = endpoint_host(settings.host)
        yield Node(
            folder,
            store,
            f"http://{local}:{receiver.http_port}",
            f"{local}:{receiver.grpc_port}",
            f"{served.url}/?database={DATABASE}",
            f"http://{local}:{settings.ui_port}" if pages else "",
            served,
            embedded,
            thread,
            children,
        )


def _threads(settings: Settings, store: Store, embedded: Embedded, stack: ExitStack) -> threading.Thread:
    """Start what runs beside the pipeline and ends with `stack`; returns the builder of stage runs."""
    ended = threading.Event()
    builder = building(store, settings)
    thread = threading.Thread(target=builder.run, args=(ended,), name=builder.name, daemon=True)
    thread.start()
    stack.callback(thread.join, 30)
    stack.callback(ended.set)
    if settings.scrape or scrape.has_gpu():
        scraper = scrape.build(settings, embedded.sink)
        threading.Thread(target=scraper.run, args=(ended,), name="scrape", daemon=True).start()
    return thread


def endpoint_host(host: str) -> str:
    """How to reach `host` from this machine."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host


def _own_folder(settings: Settings) -> Path:
    location = locate(settings.store)
    if location.folder is None:
        raise BadSetting(
            "STAGESCOPE_STORE",
            "a server",
            "a folder: `up` owns an embedded store. For a ClickHouse server run `stagescope receive`, `consume`, `watch` and `ui`",
        )
    if settings.log != "memory:":
        raise BadSetting("STAGESCOPE_LOG", settings.log, "memory: (for Kafka run `stagescope receive` and `consume`)")
    if running_endpoint(location.folder):
        raise Unavailable(
            f"`stagescope up` is running on {location.folder} already: stop that one, or use another --store"
        )
    return location.folder


def _children(settings: Settings, *, pages: bool, watch: Sequence[str] | None) -> tuple[Child, ...]:
    common = ["--with-parent", "--store", settings.store, "--failures", settings.failures]
    found = []
    if watch is not None:
        found.append(Child("watch", ["watch", "--no-build", *common, *watch]))
    if pages:
        found.append(Child("ui", ["ui", *common, "--host", settings.host, "--ui-port", str(settings.ui_port)]))
    return tuple(found)


@contextmanager
def until_told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; the former handlers come back afterwards."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(settings: Settings, *, pages: bool) -> int:
    """Run until SIGINT or SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr, level=logging.WARNING)
    with until_told_to_stop() as stop, node(settings, pages=pages) as running:
        for name, address in running.addresses():
            print(f"{name:<16}{address}", flush=True)
        print("ready; Ctrl-C stops", flush=True)
        running.wait(stop)
        print("stopping …", file=sys.stderr, flush=True)
    return DONE
