"""`stagescope doctor`: looks at every place the product depends on and says what is wrong and how to mend it.

Must stay true: a check changes nothing where it looks, ends within seconds, and reports trouble instead of raising it.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from clickhouse_connect.driver.exceptions import DatabaseError

from ingest import gpu, host, mapping, scrape
from ingest.errors import BadInput, BadSetting, Unavailable
from ingest.exposition import parse
from ingest.failure_elastic import ElasticFailures
from ingest.settings import Settings
from ingest.store import Store, locate, running_endpoint

OK, WARNING, WRONG = "ok", "warning", "wrong"
ROOM_BYTES = 2 << 30
SKEW_S = 2.0
CONNECT_S = 3.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`state` is ok, warning or wrong; `mend` says what to do and is empty when all is well."""

    check: str
    state: str
    found: str
    mend: str = ""


class Check(NamedTuple):
    name: str
    look: Callable[[Settings], Sequence[Diagnosis]]


def examine(settings: Settings) -> Sequence[Diagnosis]:
    """Every check in turn."""
    found: list[Diagnosis] = []
    for check in CHECKS:
        try:
            found += check.look(settings)
        except BadSetting as err:
            found.append(Diagnosis(check.name, WRONG, str(err), f"correct {err.name}; README lists what it may be"))
        except (Unavailable, BadInput) as err:
            found.append(Diagnosis(check.name, WRONG, str(err), MENDS.get(check.name, "")))
    return found


def check_settings(settings: Settings) -> Sequence[Diagnosis]:
    """Settings that only fail when used: the mapping file, exporter addresses, peers, ports that collide."""
    mapping.load(settings.stages)
    scrape.targets(settings.scrape)
    host.parse_peers(settings.scrape_peers)
    names = ("otlp_grpc_port", "otlp_http_port", "clickhouse_port", "ui_port")
    ports: dict[int, str] = {}
    for name in names:
        port = getattr(settings, name)
        if port and port in ports:
            return [
                Diagnosis(
                    "settings",
                    WRONG,
                    f"{name} and {ports[port]} are both {port}",
                    f"give STAGESCOPE_{name.upper()} another port",
                )
            ]
        ports[port] = name
    return [Diagnosis("settings", OK, "all readable")]


def check_ports(settings: Settings) -> Sequence[Diagnosis]:
    """Whether `up` could listen; ports held by a running `up` of this store are as they should be."""
    folder = locate(settings.store).folder
    if folder is not None and running_endpoint(folder):
        return [Diagnosis("ports", OK, "stagescope up is running on this store")]
    found = []
    for name in ("otlp_grpc_port", "otlp_http_port", "clickhouse_port", "ui_port"):
        port = getattr(settings, name)
        try:
            with socket.socket() as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((settings.host, port))
        except OSError as err:
            mend = f"stop what listens there, or set STAGESCOPE_{name.upper()} to a free port"
            found.append(
                Diagnosis("ports", WRONG, f"{settings.host}:{port} ({name}) cannot be used: {err.strerror}", mend)
            )
    return found or [Diagnosis("ports", OK, "free")]


def check_store(settings: Settings) -> Sequence[Diagnosis]:
    """The store opens, has its tables, its clock agrees, and the disk has room."""
    where = locate(settings.store)
    found = []
    if where.folder is not None:
        parent = next(path for path in (where.folder, *where.folder.parents) if path.exists())
        free = shutil.disk_usage(parent).free
        if free < ROOM_BYTES:
            mend = "free some space, or move the store with STAGESCOPE_STORE"
            found.append(Diagnosis("store", WARNING, f"{free >> 20} MiB free where the store lies", mend))
        if not where.folder.exists():
            return [*found, Diagnosis("store", OK, f"{where.folder} does not exist yet; the first command makes it")]
    with Store.open(settings.store, migrate=False) as store:
        try:
            spans, now_s = (
                store.value("SELECT count() FROM otel_traces"),
                float(store.value("SELECT toUnixTimestamp64Milli(now64(3))")) / 1000,
            )
        except DatabaseError as err:
            mend = "run any command that writes (stagescope ingest, up) once: it makes the tables"
            return [*found, Diagnosis("store", WRONG, f"tables are missing: {str(err).splitlines()[0][:160]}", mend)]
        found.append(Diagnosis("store", OK, f"{spans} spans"))
        found += _clock("store", now_s - time.time())
    return found


def check_log(settings: Settings) -> Sequence[Diagnosis]:
    """Every broker named takes a connection."""
    if settings.log.startswith("memory:"):
        return [Diagnosis("log", OK, "in memory: an answer means stored")]
    if not settings.log.startswith("kafka://"):
        raise BadSetting("STAGESCOPE_LOG", settings.log, "memory: or kafka://host:9092[,host…]")
    found = []
    for broker in urlsplit(settings.log).netloc.rpartition("@")[2].split(","):
        name, _, port = broker.partition(":")
        if host.connect_ms((name, int(port) if port.isdecimal() else 9092), CONNECT_S) is None:
            mend = "start the broker (make kafka starts one here), or correct STAGESCOPE_LOG"
            found.append(Diagnosis("log", WRONG, f"Kafka at {broker} takes no connection", mend))
    return found or [Diagnosis("log", OK, "all brokers take connections")]


def check_failures(settings: Settings) -> Sequence[Diagnosis]:
    """Elasticsearch answers and takes our credentials."""
    if settings.failures in ("", "store:"):
        return [Diagnosis("elasticsearch", OK, "not used: failures are kept in the store")]
    if not settings.failures.startswith(("http://", "https://")):
        raise BadSetting("STAGESCOPE_FAILURES", settings.failures, "store: or http(s)://host:9200")
    index = ElasticFailures(settings.failures)
    try:
        return [Diagnosis("elasticsearch", OK, f"answers; newest revision {index.newest_revision()}")]
    finally:
        index.close()


def check_exporters(settings: Settings) -> Sequence[Diagnosis]:
    """Each page parses; a dcgm-exporter says SM activity; GPUs here are seen one way or the other."""
    found = []
    for url in scrape.targets(settings.scrape):
        try:
            names = {sample.name for family in parse(*scrape.fetch(url)).families for sample in family.samples}
        except (Unavailable, BadInput) as err:
            found.append(Diagnosis("exporters", WRONG, str(err), MENDS["exporters"]))
            continue
        if any(name.startswith("DCGM_FI_") for name in names) and "DCGM_FI_PROF_SM_ACTIVE" not in names:
            mend = "add DCGM_FI_PROF_SM_ACTIVE to the exporter's counters file; GPU_UTIL only says that some kernel ran"
            found.append(Diagnosis("exporters", WARNING, f"{url} has no SM activity", mend))
        else:
            found.append(Diagnosis("exporters", OK, f"{url}: {len(names)} series names"))
    if not found:
        found.append(_own_gpus())
    return found


def _own_gpus() -> Diagnosis:
    try:
        gpu.read()
    except Unavailable:
        return Diagnosis("exporters", OK, "none named, and no NVIDIA GPU on this host")
    return Diagnosis("exporters", OK, "none named; GPUs of this host are read through NVML")


def _clock(who: str, apart_s: float) -> Sequence[Diagnosis]:
    if abs(apart_s) <= SKEW_S:
        return [Diagnosis("clock", OK, f"{who} and this host agree within {SKEW_S:g} s")]
    mend = "let both hosts keep time (chrony, systemd-timesyncd): windows and lateness are judged by these clocks"
    return [Diagnosis("clock", WRONG, f"the {who} is {apart_s:+.1f} s from this host", mend)]


MENDS: Mapping[str, str] = {
    "store": "start the ClickHouse server, or correct STAGESCOPE_STORE; an embedded folder has one owner at a time",
    "elasticsearch": "start Elasticsearch or correct STAGESCOPE_FAILURES; nothing is lost meanwhile, the store keeps every failure",
    "exporters": "start the exporter or correct STAGESCOPE_SCRAPE",
}
CHECKS = (
    Check("settings", check_settings),
    Check("ports", check_ports),
    Check("store", check_store),
    Check("log", check_log),
    Check("elasticsearch", check_failures),
    Check("exporters", check_exporters),
)
