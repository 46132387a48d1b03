"""How fast OTLP bytes become rows, through the product's own intake, log, pipeline and store, and what is lost on the way: nothing.

    python -m bench.ingest [--spans N] [--kafka HOST:PORT | --no-kafka] [--json]

Spans have 12 attributes and about 500 bytes. The clock runs from the first request handed to the intake until the last
one is acknowledged, which is after its rows are in the store. Kafka is deploy/local-kafka unless --kafka names a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ingest_kafka import broker, kafka_rate
from bench.ingest_load import Filed, Shape, bodies
from ingest.log import TRACES, Sink
from ingest.meter import Meter
from ingest.otlp import PROTOBUF
from ingest.pipeline import start_embedded
from ingest.receiver_intake import Bounds, Intake
from ingest.store import Store

SENDERS = 64  # requests on their way at one time, as many as the receiver works on
PACED_SPANS_PER_S, PACED_S = 5000, 10
START_NS = 1_790_000_000_000_000_000
COUNTS = "SELECT count() AS rows, uniqExact(TraceId, SpanId) AS spans FROM otel_traces"
DISK = (
    "SELECT sumIf(bytes_on_disk, table = 'otel_traces') / sumIf(rows, table = 'otel_traces') AS spans, "
    "sumIf(secondary_indices_compressed_bytes, table = 'otel_traces') / sumIf(rows, table = 'otel_traces') AS indexes, "
    "sumIf(bytes_on_disk, table IN ('otel_traces_trace_id_ts', 'stage_touched')) / sumIf(rows, table = 'otel_traces') AS beside "
    "FROM system.parts WHERE active AND database = currentDatabase()"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured load: spans sent, seconds it took, spans that are not in the store, and rows too many."""

    spans: int
    seconds: float
    lost: int
    duplicated: int
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.spans / self.seconds


def intake(sink: Sink) -> Intake:
    return Intake(sink, Meter(), Bounds(64 << 20, 64 << 20, 1 << 30))


def send(door: Intake, requests: Sequence[bytes] | Filed) -> float:
    """Hand in all requests, SENDERS at a time; seconds until the last one is acknowledged."""
    began = time.perf_counter()
    with ThreadPoolExecutor(SENDERS) as senders:
        take = lambda number: door.take(TRACES, requests[number], PROTOBUF, "bench")  # noqa: E731
        for taken in senders.map(take, range(len(requests))):
            assert not taken.rejected
    return time.perf_counter() - began


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[Store, Intake]]:
    with Store.open(str(folder)) as store:
        running = start_embedded(store, Meter())
        try:
            yield store, intake(running.sink)
        finally:
            running.stop()


def throughput(folder: Path, shape: Shape, spans: int) -> tuple[Run, dict[str, float]]:
    """Load an empty embedded store; the run, and bytes a span on disk after merging."""
    with embedded(folder) as (store, door):
        send(door, list(bodies(shape, 4, START_NS, seed=0)))
        requests = Filed(folder.with_suffix(".load"), bodies(shape, max(1, spans // shape.spans), START_NS))
        before_s = cpu_s()
        seconds = send(door, requests)
        used_s = cpu_s() - before_s
        sent = len(requests) * shape.spans
        lost, duplicated = check_counts(store, sent + 4 * shape.spans)
        for table in ("otel_traces", "otel_traces_trace_id_ts", "stage_touched"):
            store.command(f"OPTIMIZE TABLE {table} FINAL")
        disk = store.read(DISK).iloc[0]
        return Run(sent, seconds, lost, duplicated, used_s), {str(name): float(value) for name, value in disk.items()}


def cpu_s() -> float:
    """CPU seconds of this process, which on a busy machine say more than the clock."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def check_counts(store: Store, sent: int) -> tuple[int, int]:
    """Spans lost, and rows that readers see twice."""
    found = store.read(COUNTS).iloc[0]
    return sent - int(found["spans"]), int(found["rows"]) - int(found["spans"])


def freshness(folder: Path) -> tuple[float, int]:
    """p99 of seconds from sending to stored at a paced 5,000 spans/s, and spans lost."""
    shape = Shape(spans=250)
    gap_s = shape.spans / PACED_SPANS_PER_S
    requests = list(bodies(shape, int(PACED_S / gap_s), START_NS))
    waits: list[float] = []
    with embedded(folder) as (store, door), ThreadPoolExecutor(SENDERS) as senders:
        began = time.perf_counter()

        def one(number: int, body: bytes) -> None:
            door.take(TRACES, body, PROTOBUF, "bench")
            waits.append(time.perf_counter() - began - number * gap_s)

        pause = threading.Event()
        futures = []
        for number, body in enumerate(requests):
            pause.wait(max(0.0, began + number * gap_s - time.perf_counter()))
            futures.append(senders.submit(one, number, body))
        for future in futures:
            future.result()
        lost, _ = check_counts(store, len(requests) * shape.spans)
    return sorted(waits)[int(len(waits) * 0.99)], lost


def run(spans: int, kafka: str | None) -> dict[str, object]:
    """All measurements; `kafka` is a broker's address, '' to start one, None to leave Kafka out."""
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as name:
        folder = Path(name)
        plain, disk = throughput(folder / "plain", Shape(), spans)
        nested, _ = throughput(folder / "nested", Shape(nested_every=10), spans // 2)
        fresh_s, fresh_lost = freshness(folder / "fresh")
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        through = _through_kafka(folder / "kafka", spans // 2, kafka)
    runs = [plain, nested, *([through] if isinstance(through, Run) else [])]
    return {
        "embedded_spans_per_s": round(plain.rate),
        "embedded_nested_spans_per_s": round(nested.rate),
        "kafka_spans_per_s": round(through.rate) if isinstance(through, Run) else None,
        "kafka_note": "" if isinstance(through, Run) else through,
        "bytes_per_span": round(disk["spans"], 1),
        "index_bytes_per_span": round(disk["indexes"], 1),
        "side_tables_bytes_per_span": round(disk["beside"], 1),
        "freshness_p99_s": round(fresh_s, 3),
        "lost": sum(each.lost for each in runs) + fresh_lost,
        "duplicated": sum(each.duplicated for each in runs),
        "peak_rss_mb": round(peak_mb),
        "spans": plain.spans,
        "cpu_us_per_span": round(plain.cpu_s / plain.spans * 1e6, 1),
        "nested_cpu_us_per_span": round(nested.cpu_s / nested.spans * 1e6, 1),
        "load_average": os.getloadavg()[0],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def _through_kafka(folder: Path, spans: int, kafka: str | None) -> Run | str:
    if kafka is None:
        return "left out (--no-kafka)"
    shape = Shape()
    requests = Filed(folder.parent / "kafka-load", bodies(shape, max(1, spans // shape.spans), START_NS))
    sent = len(requests) * shape.spans
    hand_in: Callable[[Sink], float] = lambda sink: send(intake(sink), requests)  # noqa: E731
    with broker(kafka, folder) as address:
        if not address.startswith("kafka://"):
            return address
        with Store.open(str(folder / "store")) as store:
            seconds = kafka_rate(address, store, hand_in, sent)
            return Run(sent, seconds, *check_counts(store, sent))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ingest", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000, help="spans of the main run (default 1,000,000)")
    parser.add_argument(
        "--kafka", default="", metavar="HOST:PORT", help="a broker to use instead of deploy/local-kafka"
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave Kafka out")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    if args.spans < 4096:
        parser.error("--spans must be at least 4096")
    out = run(args.spans, None if args.no_kafka else args.kafka)
    if args.json:
        print(json.dumps(out))
        return
    for name, value in out.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    main()
