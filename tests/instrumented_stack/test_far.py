"""Talking to others: receivers that are busy, folders, a live run's export, and servers that speak the OpenAI API."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from instrumented_stack import openai_api
from instrumented_stack.engine import Ask, EngineOptions
from instrumented_stack.engine_sim import Engine
from instrumented_stack.engine_vllm import VllmEngine
from instrumented_stack.errors import AgentExecutionFailed, ResourceExhausted
from instrumented_stack.hardware import GPUS, MODELS
from instrumented_stack.live import serve_all
from instrumented_stack.pace import Asked, pace_of, quantile
from instrumented_stack.sinks import HttpSink, open_sink
from instrumented_stack.stack import Overrides, run


class _Otlp(BaseHTTPRequestHandler):
    """Answers as its server's list says, one status a request, then 200."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        status = self.server.statuses.pop(0) if self.server.statuses else 200  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("retry-after", "0")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def otlp() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Otlp)
    server.paths, server.statuses, server.bodies = [], [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_busy_receiver_is_asked_again_and_a_refusal_is_said(otlp: Any) -> None:
    sink = HttpSink(f"http://127.0.0.1:{otlp.server_port}/v1/traces")
    otlp.statuses.extend([429, 503, 200, 400])
    sink.write("traces", b"")
    assert otlp.paths == ["/v1/traces"] * 3
    with pytest.raises(ConnectionError, match="400"):
        sink.write("metrics", b"")
    sink.close()
    with pytest.raises(ConnectionError, match="gave up"):
        HttpSink("http://127.0.0.1:1", patience_s=0.1).write("traces", b"")


def test_a_folder_takes_protobuf(tmp_path: Path) -> None:
    sink = open_sink(str(tmp_path / "deep" / "out"))
    sink.write("traces", b"one")
    sink.write("metrics", b"two")
    assert {path.name: path.read_bytes() for path in (tmp_path / "deep" / "out").iterdir()} == {
        "traces-00001.pb": b"one",
        "metrics-00001.pb": b"two",
    }


def test_a_live_run_exports_over_http(otlp: Any, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'seconds = 1\n[traffic]\nrps = 4\ntasks = { calculation = 1 }\noutput_scale = 0.05\n[stack]\ntool_select = "prompt"\n'
    )
    outcome = run(tmp_path / "s.toml", f"http://127.0.0.1:{otlp.server_port}", Overrides(seed=2), speed="live")
    assert outcome.requests > 0
    assert outcome.failed == 0
    assert outcome.spans >= 13 * outcome.requests
    assert "/v1/traces" in otlp.paths
    assert outcome.pace is not None
    assert outcome.pace.sent_per_s == outcome.requests
    assert all(0 < p50 <= p99 < 30 for p50, p99 in outcome.pace.thirds)


def test_a_live_run_whose_spans_nobody_takes_fails(otlp: Any, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "seconds = 0.5\n[traffic]\nrps = 4\ntasks = { calculation = 1 }\noutput_scale = 0.05\n"
    )
    otlp.statuses.extend([400] * 50)
    with pytest.raises(ConnectionError, match="spans"):
        run(tmp_path / "s.toml", f"http://127.0.0.1:{otlp.server_port}", Overrides(seed=2), speed="live")


def test_pace_says_how_late_and_how_long_by_thirds() -> None:
    asked = [Asked(at, 0.001 * (at == 89), 1.0 + (at >= 60), 200) for at in range(90)]
    pace = pace_of(asked, 90.0)
    assert pace.sent_per_s == 1.0
    assert pace.thirds == ((1.0, 1.0), (1.0, 1.0), (2.0, 2.0))
    assert pace.late_p99_ms == pytest.approx(1.0)
    assert str(pace).startswith("1.0 requests/s sent, 1 ms late at p99; answers")
    assert pace_of([], 10.0).thirds == ()
    assert [quantile([3, 1, 2], share) for share in (0.0, 0.34, 0.5, 1.0)] == [1, 2, 2, 3]


def test_the_vllm_adapter_speaks_the_openai_api() -> None:
    """Against the simulated engine's own HTTP face, which is the same API; a real server is tried elsewhere."""
    inner = Engine(EngineOptions(GPUS["NVIDIA H100"], MODELS["SmolLM2-135M"], max_model_len=4_096))

    async def chat(http: HttpRequest) -> Response:
        return await openai_api.chat(http, inner)

    async def health(_: HttpRequest) -> Response:
        return Response("ok")

    async def main() -> None:
        apps = {
            "v": Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/health", health)])
        }
        running = await serve_all(apps, {})
        engine = VllmEngine(replace(inner.options), running.urls["v"], "smollm2")
        assert await engine.healthy()
        answer = await engine.generate(Ask(200, 12, "system", 100, text="hello"))
        assert len(answer.text.split()) == 12
        assert 0 < answer.first_token_s <= answer.total_s
        assert (answer.queue_s, answer.kv_usage, answer.batch_size) == (None, None, None)
        with pytest.raises(ResourceExhausted):
            await engine.generate(Ask(10, 5_000))
        await running.stop()
        assert not await engine.healthy()
        with pytest.raises(AgentExecutionFailed, match="away"):
            await engine.generate(Ask(10, 5))
        await engine.close()

    asyncio.run(main())


def test_the_plain_example_sends_stages_with_their_work(otlp: Any) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "plain_agent.py"
    address = f"http://127.0.0.1:{otlp.server_port}"
    done = subprocess.run(
        [sys.executable, str(example), address, "10"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"10 requests, 1 failed, sent to {address}\n"
    spans = [
        span
        for body in otlp.bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert len(spans) == 9 * 5 + 3
    for span in spans:
        about = {pair.key: pair.value for pair in span.attributes}
        assert {"stagescope.stage", "user.id", "cloud.region", "device.type"} <= set(about)
        if span.name in ("tool_select", "llm_generate"):
            assert about["gen_ai.usage.input_tokens"].int_value > 0
    assert any(event.name == "exception" for span in spans if span.name == "data_fetch" for event in span.events)
