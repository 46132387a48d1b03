"""From runs to lost seconds: both ledgers of one stage by cause, with a bootstrap interval over whole minutes.

Must stay true: no millisecond is counted under two causes, and a loss off the critical path counts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analytics.expectation import ALWAYS_ON, Expectation, small_purpose_on_big
from analytics.expectation_needs import Needs
from analytics.slow_features import Feature, features, marks
from analytics.slow_select import LOAD_EFFECT, Effect, select
from analytics.slow_stage import KNOWN_SHARE, Array, Flags, Stage
from analytics.slow_waste import Small, wastes

WAIT_FLOOR_MS = 15.0
WAIT_FLOOR_SHARE = 0.05
QUEUE_SHARE, STRETCH_BLOCKS = 0.2, 5
DRAWS = 400
MODEL_ERROR = 0.33
MEASURED_ERROR = 0.10
MEASURED_CAUSES = frozenset({"retry", "queueing", "batch_stall", "lock_wait", "context_init", "cpu_blocking"})
UNKNOWN_SHARE = 0.30
HEAVY_EXCESS = 0.35
ADDITIVE_BELOW = 0.5
# Where the work is not known, only what was measured on the very host, and only if it moves the time this much; and what sets slices
# apart whose requests were of the same size elsewhere on their way.
HARDWARE = frozenset({"gpu_contention", "pcie_saturation", "storage_wait", "network_hop", "cold_start"})
RECORDED = frozenset({"fallback_path", "kv_cache_pressure"})
STRONG_EFFECT = math.log(1.35)
SAME_SIZE = math.log(1.15)
MIN_SIBLINGS = 30


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost ms per run on the critical path by cause, with how it was explained. `measured`: read off the runs, not modelled."""

    stage: Stage
    expected: Expectation
    by_cause: Mapping[str, Array]
    effects: tuple[Effect, ...]

    def total(self) -> Array:
        return sum(self.by_cause.values(), np.zeros(len(self.stage.service_ms)))

    def of(self, cause: str) -> Array:
        return self.by_cause.get(cause, np.zeros(len(self.stage.service_ms)))


def losses(stage: Stage, expected: Expectation, need: Needs, small: Small) -> Loss:
    """Everything one stage loses, by cause."""
    found: dict[str, Array] = dict(_measured(stage))
    effects = _effects(stage, expected)
    shift, parts = _explained(stage, effects, expected)
    for cause, lost in parts.items():
        found[cause] = found.get(cause, 0.0) + lost
    judged = stage.known if stage.known_share >= KNOWN_SHARE else np.full(len(stage.known), expected.source == "budget")
    excess = np.where(judged, stage.service_ms - shift - expected.healthy_mean_ms, 0.0)
    cause = _of_the_rest(stage, expected, excess)
    if cause:
        found[cause] = found.get(cause, 0.0) + excess
    for waste, lost in wastes(stage, expected, need, small).items():
        room = np.maximum(
            stage.service_ms * 0.98 - sum((found[c] for c in found if c not in MEASURED_CAUSES), 0.0), 0.0
        )
        found[waste] = found.get(waste, 0.0) + np.minimum(lost, room)
    return Loss(stage, expected, {cause: lost * stage.on_path for cause, lost in found.items()}, tuple(effects))


def _effects(stage: Stage, expected: Expectation) -> list[Effect]:
    """What explains the stage's times. Without known work its mix may be what moved: then only strong effects that do not stand for it."""
    found = select(np.log(stage.service_ms / expected.usual_ms), stage.block, features(stage))
    if stage.known_share >= KNOWN_SHARE:
        return found
    strength: dict[str, float] = {}
    for effect in found:
        told = _told(effect.feature)
        strength[told] = strength.get(told, 0.0) + effect.log_effect * float(
            effect.feature.values[effect.feature.on].mean()
        )
    return [e for e in found if strength[_told(e.feature)] >= STRONG_EFFECT and _beside_the_work(stage, e.feature)]


def _told(feature: Feature) -> str:
    """What a feature speaks for: signs of one mechanism speak for it together, each place for itself."""
    return feature.cause if feature.group == "mechanism" else feature.name


def _beside_the_work(stage: Stage, feature: Feature) -> bool:
    """Seen on the host; or a fallback, a full cache, a place or a version whose requests were no bigger on the stages that tell."""
    if feature.group == "mechanism" and feature.cause in HARDWARE:
        return True
    if feature.cause not in RECORDED and feature.group not in ("dimension", "host", "version"):
        return False
    size = stage.fact("trace_tokens")
    inside, outside = (size[mask & (size > 0)] for mask in (feature.on, ~feature.on))
    if min(len(inside), len(outside)) < MIN_SIBLINGS:
        return False
    return abs(math.log(float(np.median(inside)) / float(np.median(outside)))) < SAME_SIZE


def _measured(stage: Stage) -> Mapping[str, Array]:
    floor = np.maximum(WAIT_FLOOR_MS, WAIT_FLOOR_SHARE * stage.service_ms)
    found = {}
    for cause, spent in stage.parts.items():
        lost = spent if cause == "retry" else np.maximum(spent - floor, 0.0)
        lost = np.where(_standing(stage, spent), lost, 0.0) if cause == "queueing" else lost
        if lost.any():
            found[cause] = lost
    return found


def _standing(stage: Stage, spent: Array) -> Flags:
    """Runs in stretches of five minutes whose mean wait is over a fifth of the service time; a little waiting is what sharing costs.

    Minutes are counted from the first one, and what is left over at the end belongs to the stretch before it: a few runs are none.
    """
    minute = stage.block - stage.block.min()
    last = max(int(minute.max() + 1) // STRETCH_BLOCKS - 1, 0)
    stretch = np.unique(np.minimum(minute // STRETCH_BLOCKS, last), return_inverse=True)[1]
    ratio = np.bincount(stretch, weights=spent) / np.maximum(np.bincount(stretch, weights=stage.service_ms), 1e-9)
    found: Flags = (ratio > QUEUE_SHARE)[stretch]
    return found


def _explained(stage: Stage, effects: Sequence[Effect], expected: Expectation) -> tuple[Array, Mapping[str, Array]]:
    """ms per run that go with the chosen features: t (1 - exp(-sum)), split in proportion to the log effects."""
    pulls = [np.maximum(effect.log_effect * effect.feature.values, 0.0) for effect in effects if not _natural(effect)]
    named = [effect for effect in effects if not _natural(effect)]
    if not named:
        return np.zeros(len(stage.service_ms)), {}
    total = np.sum(pulls, axis=0)
    shift = stage.service_ms * (1.0 - np.exp(-total))
    parts: dict[str, Array] = {}
    for effect, pull in zip(named, pulls, strict=True):
        cause = cause_of(stage, effect.feature, expected)
        parts[cause] = parts.get(cause, 0.0) + shift * pull / np.maximum(total, 1e-12)
    return shift, parts


def _natural(effect: Effect) -> bool:
    """Mild slowing with load, or while others wait in the engine, is how batching works; only a steep one is a hidden queue."""
    feature = effect.feature
    if feature.group == "load":
        low, high = np.quantile(feature.values, (0.1, 0.9))
        return bool(effect.log_effect * (high - low) < LOAD_EFFECT)
    return feature.cause == "queueing" and effect.log_effect < LOAD_EFFECT


def cause_of(stage: Stage, feature: Feature, expected: Expectation) -> str:
    """A stretch of time has no cause of its own: a tool's is its dependency's, a gap's the network's; else the shape of the excess tells."""
    if feature.group != "time":
        return feature.cause
    if stage.tool or stage.kind == "fetch":
        return "slow_dependency"
    return "network_hop" if stage.kind == "gap" else _by_shape(stage, expected, feature.on)


def _by_shape(stage: Stage, expected: Expectation, on: Flags) -> str:
    """Slow computing grows with the work; waiting for something outside costs the same whatever the work.

    With x the work's justified time, the excess goes as x^g: g near 1 is the stage itself (unknown), near 0 a dependency.
    """
    usual, excess = expected.usual_ms[on], (stage.service_ms - expected.usual_ms)[on]
    if len(usual) < 60 or float(np.log(usual).std()) < 0.15:
        return "unknown"
    low, high = np.quantile(usual, (1 / 3, 2 / 3))
    small, large = usual <= low, usual >= high
    less, more = float(np.median(excess[small])), float(np.median(excess[large]))
    if less <= 0 or more <= 0:
        return "unknown"
    growth = math.log(more / less) / math.log(float(np.median(usual[large])) / float(np.median(usual[small])))
    return "slow_dependency" if growth < ADDITIVE_BELOW else "unknown"


def _of_the_rest(stage: Stage, expected: Expectation, excess: Array) -> str:
    """The cause of what no feature explains, or '' where it is natural variation."""
    if not expected.bad:
        heavy = float(excess.mean()) > HEAVY_EXCESS * float(expected.healthy_mean_ms.mean())
        return "unknown" if heavy and expected.source in ("peers", "roofline", "tier") else ""
    if float(excess.mean()) <= 0:
        return ""
    if stage.kind == "gap":
        return "network_hop"
    if expected.source == "budget" and small_purpose_on_big(stage):
        return "oversized_model"
    always = [mark for mark in marks(stage) if float(mark.on.mean()) > ALWAYS_ON]
    if always:
        return max(always, key=lambda mark: (float(mark.on.mean()), mark.cause)).cause
    return _by_shape(stage, expected, np.ones(len(excess), dtype=bool))


def first_cause(loss: Loss) -> tuple[str, tuple[str, ...]]:
    """(the cause with the largest saving, the others above a fifth of it); unknown where the named ones explain under 30 %."""
    sums = {cause: float(lost.sum()) for cause, lost in loss.by_cause.items() if float(lost.sum()) > 0}
    if not sums:
        return "unknown", ()
    total = sum(sums.values())
    order = sorted(sums, key=lambda cause: (-sums[cause], cause))
    named = [cause for cause in order if cause != "unknown"]
    if not named or sum(sums[cause] for cause in named) < UNKNOWN_SHARE * total:
        return "unknown", tuple(named)
    return named[0], tuple(cause for cause in order if cause != named[0] and sums[cause] >= 0.2 * sums[named[0]])


def interval(stage: Stage, lost: Array, measured: bool) -> tuple[float, float]:
    """90 % interval of the window's lost seconds: minutes are drawn again, then widened for model error by exp(+-0.33 z)."""
    if not lost.any():
        return 0.0, 0.0
    per_block = np.bincount(np.unique(stage.block, return_inverse=True)[1], weights=lost)
    source = np.random.default_rng(20_131)
    draws = source.multinomial(len(per_block), np.full(len(per_block), 1 / len(per_block)), size=DRAWS)
    sums = (draws @ per_block) * stage.weight / 1e3
    error = MEASURED_ERROR if measured else MODEL_ERROR
    wide = sums * np.exp(source.normal(0.0, error, DRAWS) - error**2 / 2)
    low, high = np.quantile(wide, (0.05, 0.95))
    return float(low), float(high)


def lost_seconds(stage: Stage, lost: Array) -> float:
    """The window's lost seconds: the sample's mean times all runs."""
    return math.fsum(lost.tolist()) * stage.weight / 1e3
