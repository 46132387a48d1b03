"""Localising injected latency faults in real microservice traces: `python -m bench.nezha --data DIR [--metrics] [--json]`.

Must stay true: spans go through the product's tables and stage building, and the product's own analyzer names the service.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from analytics import localise_metrics
from analytics.findings import Window
from analytics.localise import localise
from analytics.localise_load import load
from analytics.stages import build
from bench.nezha_data import Day, Fault, days, fill
from ingest.store import Store

LATENCY = ("network_delay", "cpu_contention", "cpu_consumed")
AFTER = timedelta(seconds=150)
FAULT_LASTS = timedelta(minutes=4)
ONSET = timedelta(minutes=1)
MIN_BLOCKS = 4


def blocks_for(fault: Fault, day: Day) -> list[Window]:
    """Minutes of traffic that overlap no fault, nor the minute before this one: earlier ones and the fault-free ones that
    came with the data; where these are fewer than 4, later ones of the day too."""
    quiet = [
        minute
        for minute in day.minutes
        if all(minute.end <= other.at or minute.start >= other.at + FAULT_LASTS for other in day.faults)
        and (minute.end <= fault.at - ONSET or minute.start >= fault.at)
    ]
    earlier = [minute for minute in quiet if minute.end <= fault.at]
    healthy = list(day.healthy)
    return earlier + healthy if len(earlier) + len(healthy) >= MIN_BLOCKS else quiet + healthy


def rank(store: Store, fault: Fault, day: Day, metrics: bool) -> tuple[int, bool, str]:
    """Place of the true service (0: not named), whether the window has traces, and the first three suspects."""
    window, blocks = Window(fault.at, fault.at + AFTER), blocks_for(fault, day)
    runs = load(store, window, blocks)
    found = localise(runs, localise_metrics.metrics(store, window, day.calm(fault)) if metrics else None)
    names = [suspect.service for suspect in found]
    place = names.index(fault.service) + 1 if fault.service in names else 0
    words = ", ".join(f"{suspect.service} {suspect.score:.1f} ({suspect.how})" for suspect in found[:3])
    return place, bool((runs["block"] == -1).any()), words


def summary(places: Sequence[int]) -> dict[str, Any]:
    """Faults, and the share of them whose true service is among the first 1, 3, 5."""
    count = len(places)
    shares = {
        f"as{top}": round(sum(0 < place <= top for place in places) / count, 4) if count else None for top in (1, 3, 5)
    }
    return {"faults": count, "as1_hits": sum(place == 1 for place in places), **shares}


def by_kind(results: Sequence[tuple[Fault, int]]) -> Mapping[str, Any]:
    groups: dict[str, list[int]] = defaultdict(list)
    for fault, place in results:
        groups[fault.kind].append(place)
    return {kind: summary(places) for kind, places in sorted(groups.items())}


def bench(data: Path, metrics: bool) -> dict[str, Any]:
    """Load every day, build stages, localise every fault."""
    began = time.monotonic()
    traced: list[tuple[Fault, int]] = []
    untraced: list[tuple[Fault, int]] = []
    misses, spans, seconds = [], 0, 0.0
    with tempfile.TemporaryDirectory(prefix="nezha-") as folder:
        for day in days(data, Path(folder) / "data"):
            with Store.open(str(Path(folder) / day.name)) as store:
                fill(store, day, metrics)
                report = build(store, day.window)
                spans, seconds = spans + report.spans, seconds + report.seconds
                for fault in day.faults:
                    place, has_traces, words = rank(store, fault, day, metrics)
                    (traced if has_traces else untraced).append((fault, place))
                    if place != 1 and fault.kind in LATENCY and (has_traces or metrics):
                        misses.append(
                            f"{fault.at:%Y-%m-%d %H:%M:%S} {fault.kind} {fault.service}: place {place}; {words}"
                        )
    latency = [(fault, place) for fault, place in traced if fault.kind in LATENCY]
    out: dict[str, Any] = summary([place for _, place in latency])
    out |= {"by_kind": by_kind(latency), "all_kinds": by_kind(traced), "misses": misses}
    if metrics:
        out["without_traces"] = summary([place for fault, place in untraced if fault.kind in LATENCY])
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    machine = f"{platform.machine()}, {psutil.cpu_count()} CPUs, {psutil.virtual_memory().total >> 30} GiB"
    return out | {
        "spans": spans,
        "stage_runs_spans_per_s": round(spans / seconds) if seconds else None,
        "seconds": round(time.monotonic() - began, 1),
        "peak_rss_mb": rss,
        "machine": machine,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Localise injected faults in real traces", epilog="python -m bench.nezha --data nezha --metrics"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with nezha-*.tar.gz or what is in them")
    parser.add_argument("--metrics", action="store_true", help="use the metrics too: CPU of pods, time of calls")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    if not args.data.is_dir():
        print(f"no folder {args.data}", file=sys.stderr)
        return 2
    found = bench(args.data, args.metrics)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 0 if found["faults"] else 1


if __name__ == "__main__":
    sys.exit(main())
