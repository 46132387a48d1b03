"""Grouping of log messages against true templates (Loghub-2k): the product's own patterns, one setting for every set.

Must stay true: truth is only read to score, never to group.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from analytics.templates import Templates


def group(messages: Sequence[str]) -> list[str]:
    """Pattern ids after one pass and one learning run, as the product does between two windows."""
    book = Templates()
    ids = book.assign(messages)
    book.learn()
    return [book.resolve(item) for item in ids]


def scores(found: Sequence[Hashable], truth: Sequence[Hashable]) -> dict[str, float]:
    """Grouping accuracy (share of lines in exactly right groups), F1 of exact groups, pairwise precision and recall."""
    mine, theirs = _members(found), _members(truth)
    exact = {frozenset(lines) for lines in theirs.values()}
    right = [lines for lines in mine.values() if frozenset(lines) in exact]
    both = sum(_pairs(n) for n in Counter(zip(found, truth, strict=True)).values())
    precision, recall = len(right) / max(1, len(mine)), len(right) / max(1, len(theirs))
    return {
        "ga": sum(map(len, right)) / max(1, len(truth)),
        "fga": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "pair_precision": both / (sum(_pairs(len(lines)) for lines in mine.values()) or 1),
        "pair_recall": both / (sum(_pairs(len(lines)) for lines in theirs.values()) or 1),
        "groups": len(mine),
        "true_groups": len(theirs),
    }


def _members(labels: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    out: dict[Hashable, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        out[label].append(index)
    return out


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def read(path: Path) -> tuple[list[str], list[str]]:
    """(messages, true event ids) of one `_structured_corrected.csv`."""
    with path.open(newline="", encoding="utf-8", errors="replace") as lines:
        rows = list(csv.DictReader(lines))
    return [row["Content"] for row in rows], [row["EventTemplate"] for row in rows]


def speed(messages: Sequence[str], repeats: int = 20) -> float:
    """Brand-new lines per second of one core (CPU time): every number changes in every copy, the book starts empty."""
    rng = random.Random(7)
    fresh = [
        "".join(rng.choice("0123456789") if char.isdigit() else char for char in message)
        for _ in range(repeats)
        for message in messages
    ]
    rng.shuffle(fresh)
    book = Templates()
    start = time.process_time()
    book.assign(fresh)
    return len(fresh) / (time.process_time() - start)


def run(data: Path) -> dict[str, Any]:
    """The document of CONTRACT §7 for every set under `data`."""
    files = sorted(data.rglob("*_structured_corrected.csv"))
    if not files:
        raise SystemExit(f"bench.loghub: no *_structured_corrected.csv under {data}")
    sets: dict[str, dict[str, float]] = {}
    everything: list[str] = []
    for path in files:
        messages, truth = read(path)
        everything += messages
        sets[path.name.split("_2k")[0]] = scores(group(messages), truth)
    mean = {f"mean_{key}": sum(item[key] for item in sets.values()) / len(sets) for key in ("ga", "fga")}
    pairs = {
        f"mean_{key}": sum(item[key] for item in sets.values()) / len(sets) for key in ("pair_precision", "pair_recall")
    }
    return {
        "sets": sets,
        **mean,
        **pairs,
        "lines_per_s": round(speed(everything)),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.loghub", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with *_structured_corrected.csv files")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    out = run(args.data)
    if args.json:
        print(json.dumps(out))
        return
    for name, item in out["sets"].items():
        print(f"{name:12} " + "  ".join(f"{key} {value:.3f}" for key, value in item.items()))
    print(
        f"mean GA {out['mean_ga']:.3f}  mean FGA {out['mean_fga']:.3f}  pairs {out['mean_pair_precision']:.3f}/"
        f"{out['mean_pair_recall']:.3f}  {out['lines_per_s']} brand-new lines/s  ({out['machine']})"
    )


if __name__ == "__main__":
    main()
