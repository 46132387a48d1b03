"""`stagescope up` and an unmodified OpenTelemetry SDK app: stored in 2 s, in stage_runs in 15 s; killed and started again; told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.ui.running import Up, as_json, stagescope, up, wait_for

APP = """
import sys, time
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider(resource=Resource.create({"service.name": "shop-agent", "cloud.region": "eu-west"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("app")
for number in range(int(sys.argv[1])):
    with tracer.start_as_current_span("POST /ask"):
        with tracer.start_as_current_span("chat small", attributes={
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "small",
            "gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 12}):
            time.sleep(0.002)
provider.force_flush()
print(time.time())
provider.shutdown()
"""
pytestmark = pytest.mark.slow


def run_app(port: int, requests: int) -> float:
    """Run the app; returns when its last export was answered, in seconds since 1970."""
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    done = subprocess.run(
        [sys.executable, "-c", APP, str(requests)], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return float(done.stdout)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "store", "--no-ui") as found:
        yield found


def test_an_sdk_app_is_stored_in_2_s_and_staged_in_15_s(running: Up) -> None:
    answered = run_app(running.http, 50)
    wait_for(
        lambda: running.count("otel_traces WHERE ServiceName = 'shop-agent'") == 100, 2, "100 spans in otel_traces"
    )
    wait_for(
        lambda: running.count("stage_runs WHERE ServiceName = 'shop-agent'") >= 100,
        15 - (time.time() - answered),
        "stage runs",
    )
    row = running.ask("SELECT Kind, Model, Region, max(InputTokens) FROM stage_runs WHERE Model != '' GROUP BY 1, 2, 3")
    assert row.split("\t") == ["generate", "small", "eu-west", "900"]


def test_a_second_command_goes_through_the_running_one(running: Up) -> None:
    run_app(running.http, 3)
    store = ("--store", str(running.folder))
    wait_for(lambda: running.count("stage_runs") > 0, 15, "stage runs")
    found = as_json(stagescope("p99", "--by", "service", "--json", *store))
    assert "shop-agent" in {row["service"] for row in found}
    refused = stagescope("up", *store)
    assert refused.returncode == 1
    assert "running" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_port_in_use_is_one_clear_line(running: Up, tmp_path: Path) -> None:
    for name in ("otlp-http-port", "otlp-grpc-port", "clickhouse-port", "ui-port"):
        others = {"otlp-http-port": "0", "otlp-grpc-port": "0", "clickhouse-port": "0", "ui-port": "0"}
        taken = {**others, name: str(running.http)}
        words = [part for key, value in taken.items() for part in (f"--{key}", value)]
        refused = stagescope("up", "--store", str(tmp_path / name), *words)
        assert refused.returncode == 2, refused
        assert str(running.http) in refused.stderr
        assert name.replace("-", "_").upper() in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_killed_up_leaves_no_child_and_starts_again_with_everything(tmp_path: Path) -> None:
    with up(tmp_path / "store", "--no-ui") as first:
        run_app(first.http, 20)
        children = psutil.Process(first.process.pid).children(recursive=True)
        assert children
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(10)
        wait_for(lambda: not any(alive(child) for child in children), 20, "children end with their parent")
    with up(tmp_path / "store", "--no-ui") as second:
        assert second.count("otel_traces") == 40
        wait_for(lambda: second.count("stage_runs") >= 40, 30, "stage runs of what came before")
        second.process.send_signal(signal.SIGINT)
        assert second.process.wait(30) == 0
    assert not (tmp_path / "store" / "endpoint.json").exists()


def alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
