"""The second ledger: work the purpose does not need, whatever time it takes. Bloated prompts, oversized models, idle steps, fat payloads.

Must stay true: a waste is claimed only where the run itself declares what it did (repeated tokens, outcome, bytes, model).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analytics.expectation import SMALL_KINDS, TIER_RATES, Expectation, is_big, model_billions
from analytics.expectation_needs import Needs
from analytics.slow_stage import KNOWN_SHARE, Array, Stage

SMALL_OUTPUT = 64.0
SEEN_MARGIN, TYPICAL_MARGIN = 1.2, 2.0
REDUNDANT_BELOW = 0.10
MIN_OUTCOMES = 100
FREE_PAYLOAD_KB = 100.0
FAT_PAYLOAD_KB = 250.0
SLOWEST_KB_MS = 0.2
SMALL_MODEL_B = 5.0


@dataclass(frozen=True, slots=True)
class Small:
    """Rates (ms a call, a prompt token, an output token) of the smallest tier, and how many times more is clearly more."""

    rates: Array
    margin: float


def wastes(stage: Stage, expected: Expectation, need: Needs, small: Small) -> Mapping[str, Array]:
    """Wasted ms per run by cause. `small` is what the smallest tier takes."""
    found: dict[str, Array] = {}
    bloat = bloat_tokens(stage, need)
    prompt_rate = expected.rates[1]
    if bloat is not None and prompt_rate > 0:
        found["prompt_bloat"] = bloat * prompt_rate
    oversized = _oversized(stage, small, expected, found.get("prompt_bloat"))
    if oversized is not None:
        found["oversized_model"] = oversized
    payload = _payload(stage, expected)
    if payload is not None:
        found["payload"] = payload
    share = changed_share(stage)
    if share is not None and share < REDUNDANT_BELOW:
        taken = sum(found.values(), np.zeros(len(stage.service_ms)))
        said = np.isfinite(stage.fact("ev_outcome_changed"))
        found["redundant_step"] = np.where(said, np.maximum(stage.service_ms - taken, 0.0) * (1.0 - share), 0.0)
    return found


def bloat_tokens(stage: Stage, need: Needs) -> Array | None:
    """Prompt tokens that are the same text on every call, not served from a cache, and above what the purpose needs."""
    if stage.kind == "gap" or not stage.model or stage.known_share < KNOWN_SHARE:
        return None
    uncached = stage.work[:, 1]
    said = stage.fact("ev_repeated_tokens")
    items = np.nan_to_num(stage.work[:, 5])
    allowed = need.prompt_tokens + need.prompt_tokens_per_item * items
    cached = np.nan_to_num(stage.fact("cached_tokens"))
    if np.isfinite(said).mean() >= KNOWN_SHARE:
        repeated = np.minimum(np.nan_to_num(said) - cached, uncached)
    elif stage.kind in SMALL_KINDS and _short_answers(stage) and len(uncached) >= 100:
        # Not said: what even the shortest prompts of a stage hold is taken for the fixed part.
        repeated = np.minimum(0.8 * float(np.quantile(uncached, 0.02)), uncached)
    else:
        return None
    found: Array = np.maximum(repeated - allowed, 0.0)
    return found if float(np.median(found)) > 0 or float(found.mean()) > 50 else None


def _short_answers(stage: Stage) -> bool:
    return float(np.median(stage.work[:, 2])) <= SMALL_OUTPUT


def _oversized(stage: Stage, small: Small, expected: Expectation, bloat: Array | None) -> Array | None:
    """Time beyond what the smallest tier takes for the same work, once it is clearly more than that."""
    if stage.kind not in SMALL_KINDS or stage.known_share < KNOWN_SHARE or not stage.model:
        return None
    if not is_big(stage) or not _short_answers(stage):
        return None
    there = stage.work[:, :3] @ small.rates
    own = expected.usual_ms - (bloat if bloat is not None else 0.0)
    found: Array = np.maximum(own - there, 0.0)
    return found if float(np.median(own / np.maximum(there, 1.0))) > small.margin else None


def _payload(stage: Stage, expected: Expectation) -> Array | None:
    """Time for bytes above what a reference to them would take, at the rate measured on this stage."""
    kilobytes = stage.work[:, 3]
    moved = kilobytes[kilobytes > 0]
    if len(moved) < 30 or float(np.median(moved)) <= FAT_PAYLOAD_KB:
        return None
    rate = min(expected.rates[3], SLOWEST_KB_MS)
    above = np.maximum(kilobytes - FREE_PAYLOAD_KB, 0.0)
    said = stage.parts["payload"]
    found: Array = np.maximum(above * rate, np.where(above > 0, said * above / np.maximum(kilobytes, 1.0), 0.0))
    return found if float(found.mean()) > 0 else None


def changed_share(stage: Stage) -> float | None:
    """In which share of its runs the step changed the outcome; None where too few say."""
    said = stage.fact("ev_outcome_changed")
    known = said[np.isfinite(said)]
    return float(known.mean()) if len(known) >= MIN_OUTCOMES else None


def smallest(stages: Sequence[Stage], expectations: Sequence[Expectation]) -> Small:
    """Rates of the smallest tier: those learnt from small models seen here, else typical ones with a wider margin."""
    learnt = [
        np.array(found.rates[:3])
        for stage, found in zip(stages, expectations, strict=True)
        if found.source == "peers" and not found.bad and _is_small(stage)
    ]
    if learnt:
        return Small(np.median(np.stack(learnt), axis=0), SEEN_MARGIN)
    return Small(np.array(TIER_RATES["edge"]), TYPICAL_MARGIN)


def _is_small(stage: Stage) -> bool:
    size = model_billions(stage.model)
    return stage.tier == "edge" or (size is not None and size <= SMALL_MODEL_B and stage.tier == "")
