"""The counters of a process that has no other door, as a page for Prometheus: /metrics, and /healthz beside it.

Must stay true: the port is bound before the block begins and free again when it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ingest.errors import BadSetting
from ingest.meter import Meter
from ingest.settings import Settings

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def meter_page(settings: Settings, meter: Meter) -> Iterator[str]:
    """Serve `meter` on settings.consume_port of settings.host while the block runs; yields the page's address, '' for port 0.

    Raises BadSetting when the port is taken.
    """
    if not settings.consume_port:
        yield ""
        return
    with page(settings.host, settings.consume_port, meter) as address:
        yield address


@contextmanager
def page(host: str, port: int, meter: Meter) -> Iterator[str]:
    """As `meter_page`; port 0 is any free one. Raises BadSetting."""

    class Asked(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            pages = {"/metrics": meter.text(), "/healthz": "ok\n"}
            found = pages.get(self.path.partition("?")[0])
            body = (found if found is not None else "there are /metrics and /healthz\n").encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Every scrape would be a line."""

    try:
        server = ThreadingHTTPServer((host, port), Asked)
    except OSError as err:
        raise BadSetting("STAGESCOPE_CONSUME_PORT", f"{host}:{port}", f"a free address ({err.strerror})") from err
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.2,), name="meter-page", daemon=True)
    serving.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        serving.join(5)
