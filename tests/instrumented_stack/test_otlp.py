"""The hand-written OTLP bytes decode, with the official classes, to exactly what was put in; runs repeat byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from instrumented_stack import otlp
from instrumented_stack.exposition import to_otlp, to_text
from instrumented_stack.samples import COUNTER, GAUGE, Sample

VALUES = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
)
ATTRIBUTES = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), VALUES, max_size=6)


def _read(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _same(found: dict[str, Any], meant: dict[str, Any]) -> bool:
    return found == meant and all(type(found[key]) is type(meant[key]) for key in meant)


@given(
    attributes=ATTRIBUTES,
    about=ATTRIBUTES,
    happened=ATTRIBUTES,
    start=st.integers(0, 2**64 - 1),
    end=st.integers(0, 2**64 - 1),
    parent=st.binary(min_size=8, max_size=8) | st.just(b""),
    failed=st.booleans(),
    message=st.text(st.characters(codec="utf-8"), max_size=30),
)
def test_spans_come_back_as_they_went_in(
    attributes: dict[str, Any],
    about: dict[str, Any],
    happened: dict[str, Any],
    start: int,
    end: int,
    parent: bytes,
    failed: bool,
    message: str,
) -> None:
    ids = otlp.identity(b"t" * 16, b"s" * 8, parent)
    rest = (
        otlp.pairs(otlp.SPAN_ATTRIBUTE, attributes)
        + otlp.event(end, "happened", happened)
        + otlp.status(failed, message)
    )
    body = otlp.resource_spans(about, ("scope", "1"), [otlp.span(ids, "name", 3, (start, end), rest)])
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (span,) = resource.scope_spans[0].spans
    assert (span.trace_id, span.span_id, span.parent_span_id) == (b"t" * 16, b"s" * 8, parent)
    assert (span.name, span.kind, span.start_time_unix_nano, span.end_time_unix_nano) == ("name", 3, start, end)
    assert _same(_read(span.attributes), attributes)
    assert _same(_read(resource.resource.attributes), about)
    assert _same(_read(span.events[0].attributes), happened)
    assert (span.status.code, span.status.message) == ((2, message) if failed else (0, ""))
    assert (resource.scope_spans[0].scope.name, resource.scope_spans[0].scope.version) == ("scope", "1")


def test_text_that_is_no_utf8_does_not_break_a_batch() -> None:
    body = otlp.resource_spans(
        {"a": "\ud83d"}, ("s", "1"), [otlp.span(otlp.identity(b"t" * 16, b"s" * 8, b""), "\udfff", 1, (1, 2), b"")]
    )
    assert ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans[0].name == "?"


def test_metrics_say_the_same_as_otlp_and_as_a_page() -> None:
    samples = [
        Sample("up", 0.25, GAUGE, {"gpu": "0"}, "dcgm-exporter", "h-1"),
        Sample("up", 0.5, GAUGE, {"gpu": '1"\n\\'}, "dcgm-exporter", "h-1"),
        Sample("tokens_total", 12, COUNTER, {}, "vllm", "h-1"),
    ]
    request = ExportMetricsServiceRequest.FromString(to_otlp(samples, 9_000, 1_000))
    first, second = request.resource_metrics
    assert [point.as_double for point in first.scope_metrics[0].metrics[0].gauge.data_points] == [0.25, 0.5]
    counter = second.scope_metrics[0].metrics[0].sum
    assert (counter.is_monotonic, counter.aggregation_temporality) == (True, 2)
    assert (counter.data_points[0].start_time_unix_nano, counter.data_points[0].time_unix_nano) == (1_000, 9_000)
    assert '\nup{gpu="1\\"\\n\\\\"} 0.5\n' in to_text(samples, ("dcgm-exporter",))
    assert "tokens_total" not in to_text(samples, ("dcgm-exporter",))


PLAIN = """
seconds = 40
seed = 3
[traffic]
rps = 3
[[fault]]
kind = "queueing"
stage = "aggregate"
"""


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(play: Callable[..., Any]) -> None:
    first, again, other = play(PLAIN), play(PLAIN), play(PLAIN, seed=4)
    assert first.bodies == again.bodies
    assert {span.trace for span in first.spans}.isdisjoint(span.trace for span in other.spans)


def test_traces_are_whole_trees_within_their_parents(play: Callable[..., Any]) -> None:
    ran = play(PLAIN)
    by_id = {span.span: span for span in ran.spans}
    assert len(by_id) == len(ran.spans) == ran.outcome.spans
    assert sum(not span.parent for span in ran.spans) == ran.outcome.requests
    for span in ran.spans:
        assert span.end_ms >= span.start_ms
        if span.parent:
            above = by_id[span.parent]
            assert above.trace == span.trace
            assert above.start_ms <= span.start_ms + 1e-3
            assert above.end_ms >= span.end_ms - 1e-3
            assert span.kind != 2 or above.kind == 3
    stages = {span.attributes["stagescope.stage"] for span in ran.spans if "stagescope.stage" in span.attributes}
    assert {
        "intent_parse",
        "tool_select",
        "data_fetch",
        "aggregate",
        "llm_generate",
        "format_check",
        "format_render",
    } <= stages


def test_a_shorter_run_tells_the_same_story(play: Callable[..., Any]) -> None:
    text = PLAIN.replace("seconds = 40", "seconds = 4000") + "start = 2000\n"
    ran = play(text, seconds=40)
    assert ran.outcome.truth["faults"][0]["start"] == "2026-11-23T00:00:20.000Z"
    assert ran.outcome.truth["end"] == "2026-11-23T00:00:40.000Z"
