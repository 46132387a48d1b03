"""Exporters to rows: pages over real HTTP, into the log, into the store, into gpu_samples and friends."""

import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from ingest import gpu, log
from ingest.errors import BadSetting, Unavailable
from ingest.host import Host, connect_ms, parse_peers
from ingest.log import Message
from ingest.scrape import Outcome, Scraper, build, has_gpu, targets
from ingest.settings import Settings
from ingest.store import Store
from ingest.writer import write

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NOW_NS = 1_800_000_000_000_000_000
DCGM = "\n".join(
    f'DCGM_FI_{name}{{gpu="0",UUID="GPU-1",modelName="H100",hostname="n1"}} {value}'
    for name, value in {
        "PROF_SM_ACTIVE": 0.65, "PROF_DRAM_ACTIVE": 0.9, "PROF_PCIE_RX_BYTES": 2.5e10, "PROF_PCIE_TX_BYTES": 140737488355330,
        "DEV_FB_USED": 60000, "DEV_FB_FREE": 20000, "DEV_FB_RESERVED": 500, "DEV_POWER_USAGE": 400.5, "DEV_GPU_UTIL": 97,
        "DEV_GPU_TEMP": 9223372036854775794, "DEV_PCIE_MAX_LINK_GEN": 5, "DEV_PCIE_MAX_LINK_WIDTH": 16,
    }.items()
)  # fmt: skip
MIG = 'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",modelName="H100",Hostname="n1",GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"} 0.25\n'
PAGES = {
    "/dcgm": DCGM, "/mig": MIG, "/bad": "<html>", "/big": "a 1\n" * 5_000_000,
    "/vllm-new": (GOLDEN / "vllm" / "vllm-0.32-cpu-metrics.prom").read_text(),
    "/vllm-old": (
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.93\nvllm:num_requests_waiting{model_name="m"} 4\n'
        '# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total{model_name="m"} 13\n'
    ),
    "/t4": (GOLDEN / "dcgm-datadog" / "serve_metrics.txt").read_text(),
}  # fmt: skip


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path, "").encode()
        self.send_response(200 if body else 500)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class _Kept:
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, topic: str, values: Sequence[bytes]) -> None:
        assert topic == log.METRICS
        self.values += values

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("scrape"))) as opened:
        yield opened


def _step(store: Store, scraper: Scraper, token: str) -> Sequence[Outcome]:
    kept = _Kept()
    scraper.sink = kept
    outcomes = scraper.step()
    for number, value in enumerate(kept.values):  # each in a block of its own: one instant must still become one row
        write(store, [Message(log.METRICS, 0, number, value)], f"{token}{number}")
    return outcomes


def test_dcgm_page_becomes_one_row_a_device(store: Store, pages: str) -> None:
    (_, _, outcome) = _step(
        store,
        Scraper([f"{pages}/dcgm", f"{pages}/mig", f"{pages}/t4"], _Kept(), clock=lambda: NOW_NS, most_bytes=1500),
        "gpu",
    )
    assert outcome.samples > 15
    rows = store.read("SELECT * FROM gpu_samples ORDER BY Host, MigInstance").set_index(["Host", "MigInstance"])
    assert len(rows) == 4, "the T4 page was spliced from two hosts"
    whole, part, t4 = rows.loc["n1", ""], rows.loc["n1", "7"], rows.loc["424773df46e0", ""]
    assert whole.SmActive == pytest.approx(0.65)
    assert (whole.MemUsedBytes, whole.MemTotalBytes) == (60000 << 20, 80500 << 20)
    assert (whole.PcieRxBytesPerSec, whole.Model, whole.Uuid) == (2.5e10, "H100", "GPU-1")
    assert whole.DeviceUtil == pytest.approx(0.97)
    assert whole.PcieMaxBytesPerSec == pytest.approx(3938e6 * 16)
    assert whole[["PcieTxBytesPerSec", "TemperatureC"]].isna().all(), "blanks are unknown"
    assert part.SmActive == pytest.approx(0.25)
    assert part.drop(["Timestamp", "Gpu", "Model", "Uuid", "SmActive"]).isna().all()
    assert (t4.Model, pd.isna(t4.SmActive)) == ("Tesla T4", True), "utilisation is not SM activity"
    assert t4.PowerWatts == pytest.approx(8.969)


def test_blanks_sent_by_others_are_dropped_too(store: Store) -> None:
    insert = (
        "INSERT INTO otel_metrics_gauge (ResourceAttributes, ServiceName, MetricName, Attributes, TimeUnix, Value) "
        "SELECT map('host.name', 'n9'), 'dcgm', {name:String}, map('gpu', '3'), now64(9, 'UTC'), {value:Float64}"
    )
    store.command(insert, name="DCGM_FI_DEV_POWER_USAGE", value=140737488355328.0)
    store.command(insert, name="DCGM_FI_PROF_SM_ACTIVE", value=0.5)
    store.command(insert, name="DCGM_FI_DEV_FB_USED", value=9223372036854775794.0)
    rows = store.read("SELECT PowerWatts, SmActive, MemUsedBytes FROM gpu_samples WHERE Host = 'n9'")
    assert rows.SmActive.dropna().tolist() == [0.5]
    assert rows[["PowerWatts", "MemUsedBytes"]].isna().all().all()


def test_vllm_of_any_age_becomes_engine_rows(store: Store, pages: str) -> None:
    _step(store, Scraper([f"{pages}/vllm-new", f"{pages}/vllm-old"], _Kept(), clock=lambda: NOW_NS), "vllm")
    rows = store.read("SELECT * FROM engine_samples").set_index("Model")
    old, new = rows.loc["m"], rows.loc["smollm2"]
    assert old.KvUsage == pytest.approx(0.93)
    assert (old.Waiting, old.Preemptions, pd.isna(old.Running), pd.isna(old.PromptTokens)) == (4, 13, True, True)
    assert (new.Running, new.Waiting, new.KvUsage) == (0, 0, 0)
    assert new.PromptTokens > 0
    assert new.EstimatedReadBytes == 0, "a zero that was read is a zero"
    assert new.Host == "127.0.0.1"


def test_a_bad_target_never_stops_the_others(pages: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/metrics"
        kept = _Kept()
        found = Scraper([gone, f"{pages}/bad", f"{pages}/none", f"{pages}/big", f"{pages}/mig"], kept).step()
    errors = [outcome.error for outcome in found]
    assert "does not answer" in errors[0]
    assert "not Prometheus text" in errors[1]
    assert "answers 500" in errors[2]
    assert "larger than" in errors[3]
    assert (errors[4], found[4].samples, len(kept.values)) == ("", 1, 1)


def test_host_readings_land_in_host_samples(store: Store) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host = Host(parse_peers(f"near=127.0.0.1:{listening.getsockname()[1]},away=127.0.0.1:1"))
        times = iter((NOW_NS, NOW_NS + 10**9))
        scraper = Scraper([], _Kept(), host=host, clock=lambda: next(times))
        _step(store, scraper, "host-a")
        _step(store, scraper, "host-b")
    rows = store.read("SELECT * FROM host_samples ORDER BY Timestamp")
    own, peers = rows[rows.NetPeer == ""], rows[rows.NetPeer != ""]
    assert pd.isna(own.CpuRatio.iloc[0]), "the first reading has no rates"
    assert 0 <= own.CpuRatio.iloc[1] <= 1
    assert own.MemUsedRatio.between(0.001, 1).all()
    assert set(peers.NetPeer) == {"near"}, "who does not answer has no round trip"
    assert (peers.NetRttMs > 0).all()


@pytest.mark.skipif(has_gpu(), reason="this host has an NVIDIA driver")
def test_no_driver_is_said_clearly() -> None:
    with pytest.raises(Unavailable, match=r"no NVIDIA driver .* STAGESCOPE_SCRAPE"):
        gpu.read("n1")


@pytest.mark.skipif(not has_gpu(), reason="this host has no NVIDIA driver")
def test_every_series_of_a_real_gpu_names_its_device() -> None:
    families = gpu.read("n1")
    assert families
    assert all(sample.labels["gpu"] and sample.labels["UUID"] for family in families for sample in family.samples)


def test_settings_are_checked_at_start() -> None:
    assert targets("a:9400, https://b/x") == ["http://a:9400/metrics", "https://b/x"]
    for wrong in ({"scrape": "ftp://x"}, {"scrape_peers": "x:1"}, {"scrape_peers": "a=b:0"}, {"scrape_seconds": 0.0}):
        with pytest.raises(BadSetting):
            build(Settings(**wrong), _Kept())
    assert build(Settings(scrape="a:1"), _Kept()).targets == ["http://a:1/metrics"]


def test_run_stops_when_told(pages: str) -> None:
    stop, seen = threading.Event(), []

    def told(outcome: Outcome) -> None:
        seen.append(outcome)
        stop.set()

    Scraper([f"{pages}/mig"], _Kept(), interval_s=60).run(stop, told)
    assert [outcome.samples for outcome in seen] == [1]


def test_connect_time_of_nobody_is_none() -> None:
    assert connect_ms(("no-such-host.invalid", 80), 0.5) is None
