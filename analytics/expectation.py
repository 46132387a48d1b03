"""What a stage's declared work justifies, learnt from all other stages of the same kind and model.

Must stay true: a stage never defines its own normal while others can; where only it can, `source` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analytics.expectation_fit import Array, lower_spread, rates
from analytics.expectation_needs import Needs
from analytics.slow_stage import Stage

KNOWN_SHARE = 0.8
FIT_ROWS = 4_000
MIN_PEERS = 2
PRIOR_STRENGTH = 0.02
# How far q25 of ln(time / justified) may lie above the centre before the stage is bad as a whole, by reference.
LEVEL_LIMIT: Mapping[str, float] = {"peers": math.log(1.6), "tier": math.log(2.2), "budget": math.log(1.6)}
MAX_REACH = 4.0
# ms a call, ms a prompt token, ms an output token on typical hardware of the tier; only their proportion is used once a model of
# any tier has been seen. docs/slow.md says where they come from.
TIER_RATES: Mapping[str, tuple[float, float, float]] = {
    "edge": (20.0, 0.15, 6.0),
    "middle": (30.0, 0.25, 14.0),
    "core": (50.0, 0.50, 28.0),
}
GAP_RATES = (2.0, 0.01)
TOKEN_COLUMNS: tuple[int, ...] = (0, 1, 2)
GAP_COLUMNS: tuple[int, ...] = (0, 3)
TOOL_COLUMNS: tuple[int, ...] = (0, 3, 4)
ANY_COLUMNS: tuple[int, ...] = (0, 1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Expectation:
    """`justified_ms` per sampled run of a stage, and how the stage stands to it.

    `source`: peers, tier, budget or self. `level` is q25 of ln(service / justified), `centre` the same of the peers, `spread` a
    healthy log standard deviation, `rates` by column of WORK, `bad` whether the stage is bad as a whole.
    """

    source: str
    rates: tuple[float, ...]
    justified_ms: Array
    level: float
    centre: float
    spread: float
    bad: bool
    peers: tuple[str, ...] = ()

    @property
    def usual_ms(self) -> Array:
        """The lower quartile to expect: of the peers for a bad stage, else the stage's own."""
        found: Array = self.justified_ms * math.exp(self.centre if self.bad else self.level)
        return found

    @property
    def healthy_mean_ms(self) -> Array:
        """Mean of a log-normal whose lower quartile is `usual_ms`: x exp(0.674 s + s^2 / 2)."""
        found: Array = self.usual_ms * math.exp(0.674 * self.spread + self.spread**2 / 2)
        return found


def learn(stages: Sequence[Stage], need: Needs) -> list[Expectation]:
    """One expectation a stage, in the given order: a first pass with all peers, a second without those found bad."""
    first = [_expect(stage, stages, frozenset(), need) for stage in stages]
    bad = frozenset(stage.label for stage, found in zip(stages, first, strict=True) if found.bad)
    if not bad:
        return first
    return [_expect(stage, stages, bad, need) for stage in stages]


def _expect(stage: Stage, stages: Sequence[Stage], bad: frozenset[str], need: Needs) -> Expectation:
    if stage.kind == "gap":
        pool, columns, prior = [s for s in stages if s.kind == "gap"], GAP_COLUMNS, np.array(GAP_RATES)
    elif stage.model and stage.known_share >= KNOWN_SHARE:
        pool = [s for s in stages if s.model == stage.model and s.known_share >= KNOWN_SHARE]
        columns, prior = TOKEN_COLUMNS, tier_rates(stage)
    else:
        return _alone(stage, need)
    peers = [s for s in pool if s.label != stage.label and s.label not in bad]
    if len(peers) >= MIN_PEERS and _reach(stage, peers, columns) <= MAX_REACH:
        return _against(stage, peers, columns, prior, "peers")
    if stage.kind == "gap":
        return _alone(stage, need)
    return _by_tier(stage, peers, stages, bad)


def _against(stage: Stage, peers: Sequence[Stage], columns: Sequence[int], prior: Array, source: str) -> Expectation:
    found = _fit(peers, columns, prior, PRIOR_STRENGTH)
    others = [_logs(peer, found, columns) for peer in peers]
    centre = float(np.median([np.quantile(logs, 0.25) for logs in others]))
    spread = float(np.median([lower_spread(logs) for logs in others]))
    return _judge(stage, found, columns, centre, spread, source, tuple(peer.label for peer in peers))


def _by_tier(stage: Stage, peers: Sequence[Stage], stages: Sequence[Stage], bad: frozenset[str]) -> Expectation:
    """Rates of the tier, scaled by how other models here stand to theirs, and by the only peer where there is one."""
    prior = tier_rates(stage)
    models = [
        s for s in stages if s.model and s.known_share >= KNOWN_SHARE and s.label not in bad and s.label != stage.label
    ]
    factors = [float(np.quantile(_logs(s, tier_rates(s), TOKEN_COLUMNS), 0.25)) for s in (peers or models)]
    if not factors:
        return _judge(stage, _fit([stage], TOKEN_COLUMNS, prior, PRIOR_STRENGTH), TOKEN_COLUMNS, 0.0, None, "self", ())
    found = prior * math.exp(float(np.median(factors)))
    return _judge(stage, found, TOKEN_COLUMNS, 0.0, None, "tier", tuple(s.label for s in peers))


def _alone(stage: Stage, need: Needs) -> Expectation:
    """A stage only it can explain: its own fit to rows and bytes; the kind's budget decides whether it is bad as a whole."""
    columns = TOOL_COLUMNS if stage.tool or stage.kind == "fetch" else ANY_COLUMNS
    used = [c for c in columns if c == 0 or (float(stage.work[:, c].std()) > 0 and stage.known_share >= KNOWN_SHARE)]
    found = _fit([stage], used, None, 0.0)
    own = _judge(stage, found, used, 0.0, None, "self", ())
    budget = need.budget_ms.get(stage.kind)
    if budget is None or stage.tool or stage.kind in ("fetch", "agent", "gap") or stage.known_share < KNOWN_SHARE:
        return own
    level = float(np.quantile(np.log(stage.service_ms / budget), 0.25))
    if level <= LEVEL_LIMIT["budget"]:
        return own
    wide = np.full(len(stage.service_ms), budget)
    full = (budget,) + (0.0,) * 5
    return Expectation("budget", full, wide, level, 0.0, own.spread, True)


def _judge(
    stage: Stage,
    found: Array,
    columns: Sequence[int],
    centre: float,
    spread: float | None,
    source: str,
    peers: tuple[str, ...],
) -> Expectation:
    logs = _logs(stage, found, columns)
    level = float(np.quantile(logs, 0.25))
    own = lower_spread(logs)
    limit = LEVEL_LIMIT.get(source, math.inf)
    bad = level - centre > limit
    full = np.zeros(6)
    full[np.array(columns)] = found
    justified = np.maximum(stage.work[:, list(columns)] @ found, 0.05)
    justified = np.where(stage.known, justified, np.median(justified))
    healthy = own if spread is None else max(own, spread) if not bad else spread
    return Expectation(source, tuple(full.tolist()), justified, level, centre, min(healthy, 0.6), bad, peers)


def _fit(stages: Sequence[Stage], columns: Sequence[int], prior: Array | None, strength: float) -> Array:
    work, time_ms, weight = [], [], []
    for stage in stages:
        rows = np.flatnonzero(stage.known)
        rows = rows[:: max(1, math.ceil(len(rows) / FIT_ROWS))]
        work.append(stage.work[np.ix_(rows, list(columns))])
        time_ms.append(stage.service_ms[rows])
        weight.append(np.full(len(rows), 1.0 / max(len(rows), 1)))
    return rates(np.concatenate(work), np.concatenate(time_ms), np.concatenate(weight), prior, strength)


def _logs(stage: Stage, found: Array, columns: Sequence[int]) -> Array:
    rows = stage.known if stage.known.any() else np.ones(len(stage.known), dtype=bool)
    justified = np.maximum(stage.work[rows][:, list(columns)] @ found, 0.05)
    logs: Array = np.log(stage.service_ms[rows] / justified)
    return logs


def _reach(stage: Stage, peers: Sequence[Stage], columns: Sequence[int]) -> float:
    """How many times the stage's usual work goes beyond the most that peers show, in its heaviest column."""
    mine = np.median(stage.work[:, list(columns[1:])], axis=0)
    most = np.max([np.quantile(peer.work[:, list(columns[1:])], 0.9, axis=0) for peer in peers], axis=0)
    heavy = mine > 50.0
    return float(np.max(np.where(heavy, mine / np.maximum(most, 50.0), 0.0), initial=0.0))


def tier_rates(stage: Stage) -> Array:
    """Typical rates of the stage's tier; the middle ones where the tier has another name."""
    return np.array(TIER_RATES.get(stage.tier, TIER_RATES["middle"]))
