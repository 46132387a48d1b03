"""Samples as OTLP metrics and as Prometheus text: the same numbers in both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, ResourceMetrics

from instrumented_stack.samples import COUNTER, Sample


def to_otlp(samples: Iterable[Sample], time_ns: int, start_ns: int) -> bytes:
    """An export request with one resource per exporter and host; counters are cumulative since `start_ns`."""
    request = ExportMetricsServiceRequest()
    resources: dict[tuple[str, str], ResourceMetrics] = {}
    metrics = {}
    for sample in samples:
        key = (sample.job, sample.host)
        if key not in resources:
            resources[key] = request.resource_metrics.add()
            about = {"service.name": sample.job, "host.name": sample.host, "service.instance.id": f"{sample.job}@{sample.host}"}
            resources[key].resource.attributes.extend(_pairs({**about, "stagescope.simulated": "true"}))
            scope = resources[key].scope_metrics.add()
            scope.scope.name = "instrumented_stack"
        named = (*key, sample.name)
        if named not in metrics:
            metrics[named] = resources[key].scope_metrics[0].metrics.add(name=sample.name)
        metric = metrics[named]
        if sample.kind == COUNTER:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            point = metric.sum.data_points.add(time_unix_nano=time_ns, start_time_unix_nano=start_ns)
        else:
            point = metric.gauge.data_points.add(time_unix_nano=time_ns)
        point.as_double = float(sample.value)
        point.attributes.extend(_pairs(sample.labels))
    return request.SerializeToString()


def _pairs(labels: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels.items()]


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
