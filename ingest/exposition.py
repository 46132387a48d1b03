"""Prometheus and OpenMetrics pages as OTLP metrics; the grammar is prometheus_client's.

Must stay true: a value that means "no value" never becomes a number, and one bad line of a classic page costs itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic
from prometheus_client.samples import Sample, Timestamp

from ingest.errors import BadInput
from ingest.formats import put_all

OPENMETRICS = "application/openmetrics-text"
MOST_SAMPLES = 200_000
DROPPED = "no-value"
# DCGM's blanks: 32-bit and 64-bit integers, floats, a blank utilisation, and what its exporter prints for missing text.
BLANK_RANGES = (
    (2147483632, 2147483647),
    (140737488355328, 140737488355343),
    (4294967295, 4294967295),
    (9.2e18, math.inf),
)
BLANK_TEXTS = ("<<<NULL>>>", "N/A", "ERR", "[N/A]", "-")


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page. `dropped` counts lines left out by reason: `no-value` (blanks), `bad-line`."""

    families: Sequence[Metric]
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Whose page it is (resource attributes), and when it was read, in nanoseconds."""

    resource: Mapping[str, str]
    time_ns: int
    scope: str = "stagescope.scrape"
    extra: Mapping[str, str] = field(default_factory=dict)


def is_blank(name: str, value: float) -> bool:
    """Whether DCGM means "no value"; only its own series have such numbers."""
    return name.startswith("DCGM_FI_") and (
        math.isnan(value) or any(low <= value <= high for low, high in BLANK_RANGES)
    )


def parse(text: str, content_type: str = "") -> Page:
    """Families of a page. OpenMetrics must be right as a whole, as its specification says. Raises BadInput(bad-page)."""
    dropped: Counter[str] = Counter()
    strict = content_type.startswith(OPENMETRICS)
    try:
        families = _openmetrics(text) if strict else _classic(_without_blank_texts(text, dropped))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as err:
        if strict:
            raise BadInput("bad-page", f"not OpenMetrics text: {str(err)[:200]}") from None
        dropped.clear()
        families = _by_line(text, dropped)
    if sum(len(family.samples) for family in families) > MOST_SAMPLES:
        raise BadInput("bad-page", f"more than {MOST_SAMPLES} samples")
    for family in families:
        kept = [sample for sample in family.samples if not is_blank(sample.name, sample.value)]
        dropped[DROPPED] += len(family.samples) - len(kept)
        family.samples = kept
    return Page(
        [family for family in families if family.samples], {key: count for key, count in dropped.items() if count}
    )


def to_request(families: Sequence[Metric], place: Place) -> ExportMetricsServiceRequest:
    """Gauges, sums, histograms and summaries; information, state sets and untyped series are gauges."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    put_all(group.resource.attributes, place.resource)
    scope = group.scope_metrics.add()
    scope.scope.name = place.scope
    for family in families:
        if family.type == "histogram":
            _histograms(scope.metrics, family, place)
        elif family.type == "summary":
            _summaries(scope.metrics, family, place)
        else:
            _numbers(scope.metrics, family, place)
    return request


def _openmetrics(text: str) -> list[Metric]:
    return list(openmetrics(text))  # type: ignore[no-untyped-call]


def _classic(text: str) -> list[Metric]:
    return list(classic(text))


def _without_blank_texts(text: str, dropped: Counter[str]) -> str:
    if not any(blank in text for blank in BLANK_TEXTS[:2]):
        return text
    lines = text.split("\n")
    kept = [
        line
        for line in lines
        if line.startswith("#") or not line.rstrip().endswith(tuple(f" {blank}" for blank in BLANK_TEXTS))
    ]
    dropped[DROPPED] += len(lines) - len(kept)
    return "\n".join(kept)


def _by_line(text: str, dropped: Counter[str]) -> list[Metric]:
    """The page without the lines that do not parse; none at all means that it is no page."""
    good: list[str] = []
    for line in text.split("\n"):
        try:
            _classic(line)
            good.append(line)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            dropped[DROPPED if line.rstrip().endswith(BLANK_TEXTS) else "bad-line"] += 1
    try:
        families = _classic("\n".join(good))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as err:
        raise BadInput("bad-page", f"not Prometheus text: {str(err)[:200]}") from None
    if not families:
        raise BadInput("bad-page", "not Prometheus text: no line of it parses")
    return families


def _metric(metrics: Any, family: Metric, name: str) -> Any:
    metric = metrics.add()
    metric.name, metric.description, metric.unit = name, family.documentation, family.unit
    return metric


def _numbers(metrics: Any, family: Metric, place: Place) -> None:
    targets: dict[str, Any] = {}
    for sample in family.samples:
        if sample.name.endswith("_created") and family.type == "counter":
            continue
        if sample.name not in targets:
            metric = _metric(metrics, family, sample.name)
            if family.type == "counter":
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            targets[sample.name] = metric.sum if family.type == "counter" else metric.gauge
        point = targets[sample.name].data_points.add()
        point.as_double = sample.value
        _common(point, sample.labels, _time(sample, place), place)


def _common(point: Any, labels: Mapping[str, str], time_ns: int, place: Place) -> None:
    point.time_unix_nano = time_ns
    put_all(point.attributes, {**place.extra, **labels})


def _time(sample: Sample, place: Place) -> int:
    """The sample's own time when it gives one, else when the page was read."""
    stamp = sample.timestamp
    if stamp is None:
        return place.time_ns
    given = stamp.sec * 10**9 + stamp.nsec if isinstance(stamp, Timestamp) else round(stamp * 1e9)
    return given if 0 < given < 2**63 else place.time_ns


def _series(family: Metric, drop: str) -> Iterator[tuple[dict[str, str], list[Sample]]]:
    """Samples by their labels without `drop`."""
    found: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != drop))
        found.setdefault(labels, []).append(sample)
    for labels, samples in found.items():
        yield dict(labels), samples


def _histograms(metrics: Any, family: Metric, place: Place) -> None:
    metric = _metric(metrics, family, family.name)
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for labels, samples in _series(family, "le"):
        buckets = sorted(
            (float(one.labels["le"]), one.value)
            for one in samples
            if one.name.endswith("_bucket") and "le" in one.labels
        )
        values = {
            one.name.rsplit("_", maxsplit=1)[-1]: one.value for one in samples if not one.name.endswith("_bucket")
        }
        if not buckets:
            continue
        point = metric.histogram.data_points.add()
        _common(point, labels, _time(samples[0], place), place)
        cumulative = [max(0, int(count)) for _, count in buckets if math.isfinite(count)]
        point.explicit_bounds.extend(bound for bound, _ in buckets if math.isfinite(bound))
        point.bucket_counts.extend(
            max(0, after - before) for before, after in zip([0, *cumulative], cumulative, strict=False)
        )
        if len(point.bucket_counts) == len(point.explicit_bounds):
            point.bucket_counts.append(0)
        point.count = sum(point.bucket_counts)
        if math.isfinite(values.get("sum", math.nan)):
            point.sum = values["sum"]


def _summaries(metrics: Any, family: Metric, place: Place) -> None:
    metric = _metric(metrics, family, family.name)
    for labels, samples in _series(family, "quantile"):
        point = metric.summary.data_points.add()
        _common(point, labels, _time(samples[0], place), place)
        for one in samples:
            if one.name.endswith("_count"):
                point.count = max(0, int(one.value)) if math.isfinite(one.value) else 0
            elif one.name.endswith("_sum"):
                point.sum = one.value
            elif "quantile" in one.labels:
                value = point.quantile_values.add()
                value.quantile, value.value = float(one.labels["quantile"]), one.value
