"""Where the CPU time of a span goes on its way in, step by step: each step is run alone, with everything before it.

    python -m bench.ingest_steps [--spans N]

Must stay true: steps run on the product's own tables and settings, with merges stopped until the last step asks for one.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.ingest_load import Shape, bodies
from ingest.cutting import digests
from ingest.log import TRACES, Message
from ingest.otlp import check
from ingest.otlp_decode import FORMAT, TABLE, decode_settings
from ingest.store import Store, schema_statements
from ingest.writer import CHUNK_BYTES, INSERT_SETTINGS

START_NS = 1_790_000_000_000_000_000
SIDE_VIEWS = ("otel_traces_trace_id_ts_mv", "stage_touched_mv")
FLATTEN = f"{TABLE}_mv"


def chunks(requests: Sequence[bytes]) -> list[bytes]:
    """Requests as the writer hands them to ClickHouse: joined, up to CHUNK_BYTES."""
    each = max(1, CHUNK_BYTES // len(requests[0]))
    return [b"".join(requests[at : at + each]) for at in range(0, len(requests), each)]


@contextmanager
def fresh(*without: str) -> Iterator[Store]:
    """An empty embedded store that does not merge by itself, without some of its views."""
    with tempfile.TemporaryDirectory(prefix="bench-steps-") as folder, Store.open(folder) as store:
        store.command("SYSTEM STOP MERGES")
        for view in without:
            store.command(f"DROP TABLE {view}")
        yield store


def insert(store: Store, parts: Sequence[bytes]) -> None:
    settings = {**INSERT_SETTINGS, **decode_settings(local=store.local)}
    for number, part in enumerate(parts):
        store.insert_bytes(TABLE, FORMAT, part, token=f"step:{number}", settings=settings)


def merge(store: Store) -> None:
    store.command("SYSTEM START MERGES")
    store.command("OPTIMIZE TABLE otel_traces FINAL")


def into_nothing(store: Store) -> None:
    """Let the flattened rows go to a table that keeps nothing."""
    view = next(text for text in schema_statements() if f"VIEW IF NOT EXISTS {FLATTEN} " in text)
    store.command("CREATE TABLE nothing AS otel_traces ENGINE = Null")
    store.command(f"DROP TABLE {FLATTEN}")
    store.command(view.replace("TO otel_traces ", "TO nothing "))


def cpu_us(spans: int, work: Callable[[], object]) -> float:
    """CPU microseconds a span of this process, all threads."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used_s / spans * 1e6


def measure(requests: Sequence[bytes], spans: int) -> Iterator[tuple[str, float]]:
    """Steps in their order, with CPU microseconds a span (of a merge: a row merged once)."""
    messages = [Message(TRACES, 0, number, body) for number, body in enumerate(requests)]
    yield "check", cpu_us(spans, lambda: [check(TRACES, body) for body in requests])
    yield "digest", cpu_us(spans, lambda: digests(messages))
    parts = chunks([check(TRACES, body).clean for body in requests])
    with fresh(FLATTEN) as store:
        yield "decode", (before := cpu_us(spans, lambda: insert(store, parts)))
    with fresh(*SIDE_VIEWS) as store:
        into_nothing(store)
        flat = cpu_us(spans, lambda: insert(store, parts))
        yield "flatten", flat - before
    with fresh(*SIDE_VIEWS) as store:
        written = cpu_us(spans, lambda: insert(store, parts))
        yield "sort, compress and write otel_traces", written - flat
        yield "one merge, with its indexes", cpu_us(spans, lambda: merge(store))
    with fresh() as store:
        yield "the two tables beside", cpu_us(spans, lambda: insert(store, parts)) - written
    with fresh(*SIDE_VIEWS) as store:
        store.command("ALTER TABLE otel_traces DROP INDEX idx_span_items")
        insert(store, parts)
        yield "one merge, without the text index", cpu_us(spans, lambda: merge(store))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest_steps", description=__doc__)
    parser.add_argument("--spans", type=int, default=300_000, help="spans of each step (default 300,000)")
    args = parser.parse_args()
    for nested_every, title in ((0, "plain spans"), (10, "one span in ten nested")):
        shape = Shape(nested_every=nested_every)
        requests = list(bodies(shape, max(1, args.spans // shape.spans), START_NS))
        print(f"{title}, CPU µs a span")
        for name, taken in measure(requests, len(requests) * shape.spans):
            print(f"  {name:40} {taken:6.2f}", flush=True)


if __name__ == "__main__":
    main()
