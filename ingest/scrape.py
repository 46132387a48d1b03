"""Reads exporters, GPUs and the host every so often and puts all of it into the log as OTLP metrics.

Must stay true: each target costs at most its time limit and its size limit, and a bad one never stops the others.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from prometheus_client.metrics_core import Metric

from ingest import gpu, log
from ingest.errors import BadInput, BadSetting, Unavailable
from ingest.exposition import OPENMETRICS, Place, parse, to_request
from ingest.host import Host, parse_peers
from ingest.otlp_split import split
from ingest.settings import Settings

ACCEPT = f"{OPENMETRICS};version=1.0.0,text/plain;version=0.0.4;q=0.5"
TIMEOUT_S = 5.0
MOST_BYTES = 16 << 20
THREADS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """One target read once: series sent, lines left out by reason, or why it could not be read."""

    target: str
    samples: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class Scraper:
    """`step` reads everything once; `run` does so every `interval_s`. `clock` gives nanoseconds since 1970."""

    targets: Sequence[str]
    sink: log.Sink
    interval_s: float = 15.0
    host: Host | None = None
    nvml: bool = False
    most_bytes: int = 900_000
    clock: Callable[[], int] = time.time_ns

    def step(self) -> Sequence[Outcome]:
        """Raises Unavailable when the log is away; what was read is then lost, as a gap in the curve."""
        now_ns = self.clock()
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda target: _page(target, now_ns), self.targets))
        if self.host is not None:
            found.append(_local("host", self.host.read, now_ns))
        if self.nvml:
            found.append(_local("nvml", gpu.read, now_ns))
        values = [part for body, _ in found if body for part in split(log.METRICS, body, self.most_bytes)]
        if values:
            self.sink.append(log.METRICS, values)
        return [outcome for _, outcome in found]

    def run(self, stop: threading.Event, told: Callable[[Outcome], None] = lambda outcome: None) -> None:
        """Until `stop`; every outcome is told. A log that is away is waited for."""
        while not stop.is_set():
            begun_s = time.monotonic()
            try:
                for outcome in self.step():
                    told(outcome)
            except Unavailable as err:
                told(Outcome("log", 0, error=str(err)))
            stop.wait(max(0.1, self.interval_s - (time.monotonic() - begun_s)))


def build(settings: Settings, sink: log.Sink) -> Scraper:
    """From the settings. Raises BadSetting."""
    if settings.scrape_seconds < 1:
        raise BadSetting("STAGESCOPE_SCRAPE_SECONDS", settings.scrape_seconds, "at least 1")
    return Scraper(
        targets(settings.scrape), sink, settings.scrape_seconds, Host(parse_peers(settings.scrape_peers)), has_gpu()
    )


def targets(text: str) -> Sequence[str]:
    """`http://host:9400/metrics,…`; a bare host:port gets /metrics. Raises BadSetting."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        url = part if "://" in part else f"http://{part}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting(
                "STAGESCOPE_SCRAPE", part, "addresses of exporter pages, http://host:9400/metrics, separated by commas"
            )
        found.append(url if parts.path else f"{url}/metrics")
    return found


def has_gpu() -> bool:
    try:
        gpu.read()
    except Unavailable:
        return False
    return True


def fetch(url: str) -> tuple[str, str]:
    """Text and content type of a page. Raises Unavailable (no answer) or BadInput (too large)."""
    body, size = [], 0
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        with httpx.stream("GET", url, headers={"accept": ACCEPT}, timeout=TIMEOUT_S, follow_redirects=False) as answer:
            if answer.status_code != 200:
                raise Unavailable(f"{_shown(url)} answers {answer.status_code}")
            for piece in answer.iter_bytes(65536):
                size += len(piece)
                if size > MOST_BYTES:
                    raise BadInput("too-large", f"{_shown(url)} is larger than {MOST_BYTES} bytes")
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"{_shown(url)} takes longer than {TIMEOUT_S:g} s")
                body.append(piece)
            return b"".join(body).decode("utf-8", "replace"), answer.headers.get("content-type", "")
    except (httpx.HTTPError, httpx.InvalidURL) as err:
        raise Unavailable(f"{_shown(url)} does not answer: {err or type(err).__name__}") from None


def _page(url: str, now_ns: int) -> tuple[bytes, Outcome]:
    try:
        page = parse(*fetch(url))
        parts = urlsplit(url)
        address = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        resource = {"service.name": "exporter", "service.instance.id": address, "server.address": parts.hostname or ""}
        body = to_request(page.families, Place(resource, now_ns)).SerializeToString() if page.families else b""
    except (Unavailable, BadInput) as err:
        return b"", Outcome(_shown(url), 0, error=str(err))
    return body, Outcome(_shown(url), sum(len(family.samples) for family in page.families), page.dropped)


def _local(name: str, read: Callable[[], Sequence[Metric]], now_ns: int) -> tuple[bytes, Outcome]:
    try:
        families = read()
    except Unavailable as err:
        return b"", Outcome(name, 0, error=str(err))
    resource = {"service.name": "stagescope", "host.name": socket.gethostname()}
    return to_request(families, Place(resource, now_ns)).SerializeToString(), Outcome(
        name, sum(len(family.samples) for family in families)
    )


def _shown(url: str) -> str:
    """The address without a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
