"""Reads the Nezha folders: spans, pod metrics and the list of faults, as the product's own tables take them.

Must stay true: names of pods become names of services by the rule for Kubernetes deployments, and by no list.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from analytics.findings import Window
from ingest.store import Store

POD = re.compile(r"^(.*?)-[0-9a-f]{8,10}-[0-9a-z]{5}$")
HEALTHY_WITHIN = timedelta(hours=48)
MINUTE = timedelta(minutes=1)
CPU_COLUMN = "CpuUsageRate(%)"


@dataclass(frozen=True, slots=True)
class Fault:
    at: datetime
    service: str
    kind: str


@dataclass(frozen=True, slots=True)
class Day:
    """One day of faults. `minutes` hold its traffic, `healthy` the fault-free traffic of the same system."""

    name: str
    faults: Sequence[Fault]
    traces: Sequence[Path]
    metrics: Sequence[Path]
    calls: Sequence[Path]
    minutes: Sequence[Window]
    healthy: Sequence[Window]
    window: Window

    def calm(self, fault: Fault) -> list[Window]:
        """Time before `fault` in which no fault acted: from 4 minutes after one to a minute before the next."""
        edges = [self.window.start, *(other.at for other in self.faults if other.at < fault.at), fault.at]
        spans = [(low + timedelta(minutes=4), high - MINUTE) for low, high in pairwise(edges)]
        return [Window(low, high) for low, high in spans if low < high]


def service_of(pod: str) -> str:
    """The deployment of a pod: its name without the two suffixes that Kubernetes adds."""
    found = POD.match(pod)
    return found[1] if found else pod


def days(data: Path, scratch: Path) -> Iterator[Day]:
    """Every day in `data` (extracted folders, or archives that are unpacked into `scratch`)."""
    roots = [data]
    for archive in sorted(data.glob("nezha-*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        roots.append(scratch)
    lists = sorted({path.resolve() for root in roots for path in root.rglob("*-fault_list.json")})
    construct = sorted({path.resolve() for root in roots for path in root.rglob("construct_data/*/trace/*.csv")})
    for path in lists:
        yield _day(path, construct)


def _day(path: Path, construct: Sequence[Path]) -> Day:
    listed = json.loads(path.read_text())
    faults = sorted(
        (
            Fault(_moment(item["inject_time"]), service_of(item["inject_pod"]), item["inject_type"])
            for hour in listed.values()
            for item in hour
        ),
        key=lambda fault: fault.at,
    )
    traces = sorted((path.parent / "trace").glob("*_trace.csv"))
    services = {service_of(pod) for pod in _column(traces[0], "PodName")} if traces else set()
    healthy = [
        file
        for file in construct
        if abs(_extent([file])[0].start - faults[0].at) < HEALTHY_WITHIN
        and services & {service_of(pod) for pod in _column(file, "PodName")}
    ]
    minutes, calm = _extent(traces), _extent(healthy)
    every = [*minutes, *calm]
    window = Window(
        min(part.start for part in every) - timedelta(hours=1), max(part.end for part in every) + timedelta(hours=1)
    )
    metrics = sorted((path.parent / "metric").glob("*_metric.csv"))
    calls = sorted((path.parent / "metric").glob("*_50.csv"))
    return Day(path.parent.name, faults, [*traces, *healthy], metrics, calls, minutes, calm, window)


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def _column(file: Path, name: str) -> Sequence[str]:
    return pd.read_csv(file, usecols=[name], dtype=str)[name].unique().tolist()


def _extent(files: Sequence[Path]) -> list[Window]:
    """The clock minutes in which spans of the files begin."""
    found: set[int] = set()
    for file in files:
        starts = pd.read_csv(file, usecols=["StartTimeUnixNano"])["StartTimeUnixNano"]
        found |= set((starts // 60_000_000_000).tolist())
    base = datetime(1970, 1, 1, tzinfo=UTC)
    return [Window(base + MINUTE * minute, base + MINUTE * (minute + 1)) for minute in sorted(found)]


def fill(store: Store, day: Day, metrics: bool) -> None:
    """Put the spans (and the CPU of the pods) of a day into the Collector's tables."""
    for file in day.traces:
        store.insert("otel_traces", _spans(file))
    for file in day.metrics if metrics else ():
        store.insert("otel_metrics_gauge", _cpu(file))
    for file in day.calls if metrics else ():
        store.insert("otel_metrics_summary", _calls(file))


def _spans(file: Path) -> pa.Table:
    raw = pd.read_csv(file, dtype={"TraceID": str, "SpanID": str, "ParentID": str})
    start = raw["StartTimeUnixNano"].to_numpy(np.int64)
    length = np.maximum(raw["EndTimeUnixNano"].to_numpy(np.int64) - start, 0)
    return pa.table(
        {
            "Timestamp": pa.array(start, pa.timestamp("ns", "UTC")),
            "TraceId": raw["TraceID"].to_numpy(object),
            "SpanId": raw["SpanID"].to_numpy(object),
            "ParentSpanId": raw["ParentID"].where(raw["ParentID"] != "root", "").fillna("").to_numpy(object),
            "SpanName": raw["OperationName"].to_numpy(object),
            "SpanKind": ["Unspecified"] * len(raw),
            "ServiceName": raw["PodName"]
            .map({pod: service_of(pod) for pod in raw["PodName"].unique()})
            .to_numpy(object),
            "Duration": pa.array(length.astype(np.uint64)),
            "StatusCode": ["Unset"] * len(raw),
        }
    )


def _cpu(file: Path) -> pa.Table:
    raw = pd.read_csv(file, usecols=["TimeStamp", "PodName", CPU_COLUMN]).dropna()
    return pa.table(
        {
            "ServiceName": raw["PodName"].map(service_of).to_numpy(object),
            "MetricName": ["k8s.pod.cpu_limit_utilization"] * len(raw),
            "TimeUnix": pa.array(raw["TimeStamp"].to_numpy(np.int64) * 1_000_000_000, pa.timestamp("ns", "UTC")),
            "Value": (raw[CPU_COLUMN] / 100).to_numpy(float),
        }
    )


def _calls(file: Path) -> pa.Table:
    """Median time of calls a minute by edge (columns `caller_callee`), as the sidecar of the side named by the file saw it."""
    raw = pd.read_csv(file).drop(columns="time").melt("timestamp", var_name="edge", value_name="seconds").dropna()
    ends = raw["edge"].str.partition("_")
    side = file.name.partition("_")[0]
    attributes = [
        [("reporter", side), ("source_workload", caller), ("destination_workload", callee)]
        for caller, callee in zip(ends[0], ends[2], strict=True)
    ]
    return pa.table(
        {
            "ServiceName": ends[0 if side == "source" else 2].to_numpy(object),
            "MetricName": ["istio_request_duration_milliseconds"] * len(raw),
            "Attributes": pa.array(attributes, pa.map_(pa.string(), pa.string())),
            "TimeUnix": pa.array(raw["timestamp"].to_numpy(np.int64) * 1_000_000_000, pa.timestamp("ns", "UTC")),
            "ValueAtQuantiles.Quantile": pa.array([[0.5]] * len(raw)),
            "ValueAtQuantiles.Value": pa.array([[value * 1000] for value in raw["seconds"]]),
        }
    )
