"""Exporter pages: the OpenMetrics project's own cases, DCGM's blanks, broken lines, and what becomes of each type."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import BadInput
from ingest.exposition import OPENMETRICS, Place, is_blank, parse, to_request
from ingest.otlp import decode_request

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = sorted(path.parent for path in (GOLDEN / "openmetrics").glob("*/test.json"))
PLACE = Place({"service.name": "exporter"}, 1_800_000_000_000_000_000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_openmetrics_cases(case: Path) -> None:
    text = (case / "metrics").read_bytes().decode()
    if json.loads((case / "test.json").read_text())["shouldParse"]:
        parse(text, f"{OPENMETRICS}; version=1.0.0")
    else:
        with pytest.raises(BadInput):
            parse(text, f"{OPENMETRICS}; version=1.0.0")


def test_cases_are_there() -> None:
    assert len(CASES) > 100


BLANKS = (
    *(9223372036854775792, 9223372036854775794, 9223372036854775807, 2147483632, 2147483647),
    *(140737488355328.0, 140737488355330.0, 4294967295, float("nan")),
)


@pytest.mark.parametrize("value", BLANKS)
def test_every_blank_of_dcgm_is_no_value(value: float) -> None:
    assert is_blank("DCGM_FI_DEV_GPU_UTIL", value)
    assert not is_blank("some_bytes", value)
    page = parse(f'DCGM_FI_DEV_A{{gpu="0"}} {value}\nDCGM_FI_DEV_B{{gpu="0"}} 7\n')
    assert [family.name for family in page.families] == ["DCGM_FI_DEV_B"]
    assert page.dropped == {"no-value": 1}


def test_real_page_with_a_blank() -> None:
    page = parse((GOLDEN / "dcgm" / "dcgm-sentinels.prom").read_text())
    names = {sample.name for family in page.families for sample in family.samples}
    assert names == {"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"}
    assert page.dropped == {"no-value": 1}


def test_a_text_blank_and_a_broken_line_cost_themselves() -> None:
    page = parse('a{x="1"} 1\nb{x="1"} <<<NULL>>>\nc{x="1 2\nd 4\n')
    assert [family.name for family in page.families] == ["a", "d"]
    assert page.dropped == {"no-value": 1, "bad-line": 1}


@pytest.mark.parametrize("text", ["<html><body>404</body></html>", "\x00\x01\x02", "{" * 1000])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse(text)


def test_types_become_their_otlp_kinds() -> None:
    text = (
        "# TYPE g gauge\ng 1.5\n# TYPE c_total counter\nc_total{a=\"b\"} 3\n# TYPE h histogram\n"
        'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 5\nh_sum 7\nh_count 5\n# TYPE s summary\ns{quantile="0.5"} 2\ns_sum 4\ns_count 2\nu 9\n'
    )  # fmt: skip
    tables = decode_request(to_request(parse(text).families, PLACE)).tables
    gauges = tables["otel_metrics_gauge"].to_pylist()
    assert [(row["MetricName"], row["Value"]) for row in gauges] == [("g", 1.5), ("u", 9.0)]
    (counter,) = tables["otel_metrics_sum"].to_pylist()
    assert (counter["MetricName"], counter["Value"], counter["IsMonotonic"], dict(counter["Attributes"])) == (
        "c_total",
        3.0,
        True,
        {"a": "b"},
    )
    (histogram,) = tables["otel_metrics_histogram"].to_pylist()
    assert (histogram["BucketCounts"], histogram["ExplicitBounds"], histogram["Count"], histogram["Sum"]) == (
        [2, 3],
        [1.0],
        5,
        7.0,
    )
    (summary,) = tables["otel_metrics_summary"].to_pylist()
    assert (summary["Count"], summary["Sum"]) == (2, 4.0)


@pytest.mark.parametrize(
    "name", ["vllm/vllm-0.32-cpu-metrics.prom", "vllm-datadog/vllm_metrics.txt", "dcgm-datadog/serve_metrics.txt"]
)
def test_real_pages_lose_nothing(name: str) -> None:
    page = parse((GOLDEN / name).read_text())
    assert not page.dropped
    request = to_request(page.families, PLACE)
    decoded = decode_request(request)
    assert decoded.rejected == 0
    assert decoded.accepted >= len(page.families)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from('ab_{}="\\\n #TYPE0.5,le+InfNa\x00é'), max_size=200), st.booleans())
def test_any_text_is_a_page_or_refused(text: str, strict: bool) -> None:
    try:
        page = parse(text, OPENMETRICS if strict else "")
    except BadInput:
        return
    decode_request(to_request(page.families, PLACE))
