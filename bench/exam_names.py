"""Other names for stages, tools and services, put into the telemetry itself: who knows the names by heart fails the exam.

Must stay true: a new name has the length of the old one, so that the bytes around it stay a valid message.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from instrumented_stack.catalogue import GATEWAY, ORCHESTRATOR, POOLS, STAGES, TOOLS_BY_NAME

SYLLABLES = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"), ("a", "e", "i", "o", "u")
# Also the name of a kind, which is a word of the contract and not a name.
FIXED = ("aggregate",)


def other_names(seed: int) -> dict[str, str]:
    """A new name of the same length for each stage, tool and service; hyphens and underscores stay where they are."""
    rng = random.Random(f"names/{seed}")
    olds = [*STAGES, *TOOLS_BY_NAME, *POOLS.values(), GATEWAY, ORCHESTRATOR]
    found: dict[str, str] = {}
    for old in olds:
        new = _word(rng, old)
        while new in found.values() or new in olds:
            new = _word(rng, old)
        found |= {} if old in FIXED else {old: new}
    return found


def renamed(folder: Path, truth: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the OTLP files of `folder` with other names; returns the truth in the same names."""
    names = other_names(int(truth["seed"]))
    pattern = re.compile("|".join(re.escape(old) for old in sorted(names, key=len, reverse=True)))
    pairs = {old.encode(): new.encode() for old, new in names.items()}
    in_bytes = re.compile(pattern.pattern.encode())
    for path in sorted(folder.glob("*.pb")):
        path.write_bytes(in_bytes.sub(lambda hit: pairs[hit.group()], path.read_bytes()))
    said = {key: truth[key] for key in ("faults", "expect")}
    swapped: dict[str, Any] = json.loads(
        pattern.sub(lambda hit: names[hit.group()], json.dumps(said, ensure_ascii=False))
    )
    # Causes and scenes are words of the contract.
    for key in said:
        for new, old in zip(swapped[key], said[key], strict=True):
            new |= {word: old[word] for word in ("cause", "cluster") if word in old}
    return truth | swapped


def _word(rng: random.Random, old: str) -> str:
    return "".join(letter if letter in "-_" else rng.choice(SYLLABLES[i % 2]) for i, letter in enumerate(old))
