"""Listens for OTLP on HTTP and gRPC and hands what comes to a log.

Must stay true: both ports are bound before `start` returns, and after `stop` every request that was answered is in the log.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import grpc
import uvicorn

from ingest import receiver_grpc, receiver_http
from ingest.errors import BadSetting
from ingest.log import Sink
from ingest.otlp import Options
from ingest.otlp_mask import mask
from ingest.receiver_intake import Bounds, Counts, Intake
from ingest.settings import Settings

THREADS = 64  # a request waits in its thread until the log has it
GRACE_S = 10.0


def options(settings: Settings) -> Options:
    """How requests are checked under these settings (masking)."""
    return Options(mask=mask(settings.mask_users, settings.mask_prompts, settings.mask_salt))


class Receiver:
    """Two listening servers. `http_port` and `grpc_port` are the real ports, also when the settings say 0."""

    def __init__(self, settings: Settings, sink: Sink, meter: Counts) -> None:
        in_memory = settings.log.startswith("memory:")
        largest = settings.max_inflated_bytes if in_memory else settings.max_message_bytes
        bounds = Bounds(settings.max_inflated_bytes, largest, settings.max_working_bytes)
        intake = Intake(sink, meter, bounds, options(settings))
        self._settings = settings
        self._grpc = receiver_grpc.server(intake, settings.max_inflated_bytes, THREADS)
        self._http = uvicorn.Server(
            uvicorn.Config(
                receiver_http.app(intake, settings.max_body_bytes, THREADS),
                log_level="error",  # bytes that are no HTTP are answered 400, and are nobody's alarm
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=int(GRACE_S),
            )
        )
        self._thread: threading.Thread | None = None
        self.http_port = 0
        self.grpc_port = 0

    def start(self) -> None:
        """Bind and serve. Raises BadSetting when a port is taken."""
        host = self._settings.host
        listening = _listen(host, self._settings.otlp_http_port)
        self.http_port = listening.getsockname()[1]
        try:
            self.grpc_port = _bind(self._grpc, host, self._settings.otlp_grpc_port)
        except BadSetting:
            listening.close()
            raise
        self._grpc.start()
        self._thread = threading.Thread(target=self._http.run, args=([listening],), name="otlp-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests and let those at work finish."""
        ended = self._grpc.stop(GRACE_S)
        self._http.should_exit = True
        if self._thread is not None:
            self._thread.join(GRACE_S + 5)
        ended.wait(GRACE_S + 5)

    def __enter__(self) -> Receiver:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(settings: Settings, sink: Sink, meter: Counts, stop: threading.Event) -> None:
    """Receive until `stop` is set. Raises BadSetting when a port is taken."""
    with Receiver(settings, sink, meter):
        stop.wait()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as err:
        listening.close()
        raise BadSetting("STAGESCOPE_OTLP_HTTP_PORT", f"{host}:{port}", f"a free address ({err.strerror})") from err
    return listening


def _bind(server: grpc.Server, host: str, port: int) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound: int = server.add_insecure_port(address)
    except RuntimeError as err:
        raise BadSetting("STAGESCOPE_OTLP_GRPC_PORT", address, "a free address") from err
    if bound == 0:
        raise BadSetting("STAGESCOPE_OTLP_GRPC_PORT", address, "a free address")
    return bound
