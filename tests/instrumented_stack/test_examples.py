"""The examples of docs/instrument-your-agent.md run as they are printed there, and what they send says stages with their work."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
# (file, package it needs, stages with the kind that each says, stages that count tokens)
CASES = [
    (
        "plain_agent.py",
        "opentelemetry.sdk",
        {"tool_select": "decide", "data_fetch": "fetch", "llm_generate": "generate", "human_approval": "wait"},
        {"tool_select", "llm_generate"},
    ),
    (
        "langgraph_agent.py",
        "langgraph",
        {"tool_select": "decide", "data_fetch": "fetch", "llm_generate": "generate"},
        {"tool_select", "llm_generate"},
    ),
    ("openai_agents.py", "agents", {"query_table": "fetch", "generation": "generate"}, {"generation"}),
]


@dataclass
class Receiver:
    """An OTLP/HTTP receiver that keeps what it gets."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                kept.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("name", "package", "kinds", "counting"), CASES, ids=[case[0] for case in CASES])
def test_an_example_runs_and_says_its_stages(
    receiver: Receiver, name: str, package: str, kinds: dict[str, str], counting: set[str]
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{name} needs {package}, which is not installed here")
    command = [sys.executable, str(EXAMPLES / name), receiver.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    about = [{pair.key: pair.value for pair in span.attributes} for span in receiver.spans]
    said = {item["stagescope.stage"].string_value: item for item in about if "stagescope.stage" in item}
    assert {stage: said[stage]["stagescope.kind"].string_value for stage in kinds} == kinds
    assert all(said[stage]["gen_ai.usage.input_tokens"].int_value > 0 for stage in counting)
    assert any("gen_ai.usage.output_tokens" in item for item in about)


def test_every_example_is_in_the_page_and_every_file_of_the_page_is_there() -> None:
    page = (EXAMPLES.parent / "instrument-your-agent.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f"docs/examples/{path.name}" in page
    assert {case[0] for case in CASES} | {"stages.py"} == {path.name for path in EXAMPLES.glob("*.py")}
