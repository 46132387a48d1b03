"""Samples as OTLP metrics and as Prometheus text: the same numbers in both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from instrumented_stack import otlp
from instrumented_stack.samples import COUNTER, Sample


def to_otlp(samples: Iterable[Sample], time_ns: int, start_ns: int) -> bytes:
    """An export request with one resource per exporter and host; counters are cumulative since `start_ns`."""
    places: dict[tuple[str, str], dict[tuple[str, str], list[bytes]]] = {}
    times = (start_ns, time_ns)
    last: Mapping[str, str] = {}
    labels = b""
    for sample in samples:
        if sample.labels is not last:  # samples of one card come together
            last, labels = sample.labels, otlp.pairs(otlp.POINT_ATTRIBUTE, sample.labels)
        body = otlp.point(labels, times, float(sample.value))
        metrics = places.get((sample.job, sample.host))
        if metrics is None:
            metrics = places[(sample.job, sample.host)] = {}
        metrics.setdefault((sample.name, sample.kind), []).append(body)
    return b"".join([_resource(job, host, metrics) for (job, host), metrics in places.items()])


def _resource(job: str, host: str, metrics: Mapping[tuple[str, str], list[bytes]]) -> bytes:
    about = {
        "service.name": job,
        "host.name": host,
        "service.instance.id": f"{job}@{host}",
        "stagescope.simulated": "true",
    }
    bodies = [otlp.metric(name, points, kind == COUNTER) for (name, kind), points in metrics.items()]
    return otlp.resource_metrics(about, "instrumented_stack", bodies)


def to_text(samples: Iterable[Sample], jobs: tuple[str, ...]) -> str:
    """A Prometheus page of the samples of these exporters, series of one name together."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.job in jobs:
            by_name.setdefault(sample.name, []).append(sample)
    lines = ["# Simulated: these numbers come from a model of the hardware, not from a device."]
    for name, group in by_name.items():
        lines.append(f"# HELP {name} {name} (simulated)")
        lines.append(f"# TYPE {name} {group[0].kind}")
        for sample in group:
            labels = ",".join(f'{key}="{_escape(value)}"' for key, value in sample.labels.items())
            lines.append(f"{name}{{{labels}}} {sample.value:.10g}" if labels else f"{name} {sample.value:.10g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
