"""What a stage's declared work justifies, learnt from all other stages of the same kind and model.

Must stay true: a stage never defines its own normal while others can; where only it can, `source` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analytics.expectation_fit import Array, lower_spread, rates
from analytics.expectation_needs import Needs
from analytics.roofline import floor_rates_ms, size
from analytics.slow_features import marks
from analytics.slow_stage import KNOWN_SHARE, Stage

FIT_ROWS = 4_000
MIN_TOOL_RUNS, FEW_TOOL_RUNS = 60, 8
MIN_PEERS = 2
PRIOR_STRENGTH = 0.02
# How far q25 of ln(time / justified) may lie above the centre before the stage is bad as a whole, by reference.
LEVEL_LIMIT: Mapping[str, float] = {
    "peers": math.log(1.6),
    "roofline": math.log(1.7),
    "tier": math.log(2.2),
    "budget": math.log(1.6),
}
# With a danger mark on nearly all its runs (a full cache, a saturated bus) a stage needs less to be called bad.
ALWAYS_ON = 0.6
MARKED_LIMIT = math.log(1.3)
MAX_REACH = 4.0
# Below this a hop is near, however its neighbours are.
NEAR_GAP_MS = 15.0
# Shares of peak arithmetic and of peak bandwidth that serving engines reach in prefill and decode.
PREFILL_SHARE, DECODE_SHARE = 0.4, 0.7
# ms a call, ms a prompt token, ms an output token on typical hardware of the tier; only their proportion is used once a model of
# any tier has been seen. docs/slow.md says where they come from.
TIER_RATES: Mapping[str, tuple[float, float, float]] = {
    "edge": (20.0, 0.15, 6.0),
    "middle": (30.0, 0.25, 14.0),
    "core": (50.0, 0.45, 20.0),
}
GAP_RATES = (2.0, 0.01)
SMALL_KINDS = ("decide", "parse", "check")
BIG_MODEL_B = 30.0
TOKEN_COLUMNS: tuple[int, ...] = (0, 1, 2)
GAP_COLUMNS: tuple[int, ...] = (0, 3)
TOOL_COLUMNS: tuple[int, ...] = (0, 3, 4)
ANY_COLUMNS: tuple[int, ...] = (0, 1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Expectation:
    """`justified_ms` per sampled run of a stage, and how the stage stands to it.

    `source`: peers, roofline, tier, budget or self. `level` is q25 of ln(service / justified), `centre` the same of the peers, `spread` a
    healthy log standard deviation, `rates` by column of WORK, `bad` whether the stage is bad as a whole, `by_tool` the rates of
    tools that have their own.
    """

    source: str
    rates: tuple[float, ...]
    justified_ms: Array
    level: float
    centre: float
    spread: float
    bad: bool
    peers: tuple[str, ...] = ()
    by_tool: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

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
        return _against(stage, peers, columns, prior)
    if stage.kind == "gap":
        return _alone(stage, need)
    return _by_tier(stage, peers, stages, bad)


def _against(stage: Stage, peers: Sequence[Stage], columns: Sequence[int], prior: Array) -> Expectation:
    found = _fit(peers, columns, prior, PRIOR_STRENGTH)
    others = [_logs(peer, found, columns) for peer in peers]
    levels = [float(np.quantile(logs, 0.25)) for logs in others]
    centre = min(levels) if stage.kind == "gap" else float(np.median(levels))
    spread = float(np.median([lower_spread(logs) for logs in others]))
    return _judge(stage, Reference("peers", found, columns, centre, spread, tuple(peer.label for peer in peers)))


def _by_tier(stage: Stage, peers: Sequence[Stage], stages: Sequence[Stage], bad: frozenset[str]) -> Expectation:
    """Rates of the tier, scaled by how other models here stand to theirs, and by the only peer where there is one."""
    prior = tier_rates(stage)
    models = [
        s for s in stages if s.model and s.known_share >= KNOWN_SHARE and s.label not in bad and s.label != stage.label
    ]
    factors = [float(np.quantile(_logs(s, tier_rates(s), TOKEN_COLUMNS), 0.25)) for s in (peers or models)]
    if not factors:
        return _judge(stage, Reference("self", _fit([stage], TOKEN_COLUMNS, prior, PRIOR_STRENGTH), TOKEN_COLUMNS))
    found = prior * math.exp(float(np.median(factors)))
    source = "tier" if floor_rates_ms(stage.gpu, stage.model) is None else "roofline"
    return _judge(stage, Reference(source, found, TOKEN_COLUMNS, peers=tuple(s.label for s in peers)))


def _alone(stage: Stage, need: Needs) -> Expectation:
    """A stage only it can explain: its own fit to rows and bytes, tool by tool; the kind's budget tells whether it is bad as a whole."""
    if stage.tool or stage.kind == "fetch":
        return _tools(stage)
    columns = [
        c for c in ANY_COLUMNS if c == 0 or (float(stage.work[:, c].std()) > 0 and stage.known_share >= KNOWN_SHARE)
    ]
    own = _judge(stage, Reference("self", _fit([stage], columns, None, 0.0), columns))
    budget = need.budget_ms.get(stage.kind)
    told = stage.known_share >= KNOWN_SHARE or small_purpose_on_big(stage)
    if budget is None or stage.kind in ("agent", "other") or not told:
        return own
    level = float(np.quantile(np.log(stage.service_ms / budget), 0.25))
    if level <= (MARKED_LIMIT if small_purpose_on_big(stage) else LEVEL_LIMIT["budget"]):
        return own
    wide = np.full(len(stage.service_ms), budget)
    full = (budget,) + (0.0,) * 5
    return Expectation("budget", full, wide, level, 0.0, own.spread, True)


def _tools(stage: Stage) -> Expectation:
    """Each tool has a pace of its own: one fit a tool (to its calls alone where they are few), one for the rarest together."""
    names, counts = np.unique(stage.tools, return_counts=True)
    big = {str(name) for name, count in zip(names, counts, strict=True) if count >= FEW_TOOL_RUNS}
    label = np.array([name if name in big else "" for name in stage.tools.tolist()])
    justified = np.ones(len(label))
    rates_of: dict[str, Array] = {}
    for name in sorted(set(label.tolist())):
        rows = np.flatnonzero(label == name)
        enough = len(rows) >= MIN_TOOL_RUNS
        columns = [c for c in TOOL_COLUMNS if c == 0 or (enough and float(stage.work[rows, c].std()) > 0)]
        found = rates(stage.work[rows][:, columns], stage.service_ms[rows], np.ones(len(rows)))
        full = np.zeros(6)
        full[np.array(columns)] = found
        rates_of[name], justified[rows] = full, np.maximum(stage.work[rows] @ full, 0.05)
    logs = np.log(stage.service_ms / justified)
    middle = np.median(np.stack(list(rates_of.values())), axis=0)
    spread = min(lower_spread(logs), 0.6)
    by_tool = {name: tuple(found.tolist()) for name, found in rates_of.items()}
    by_tool |= {str(name): by_tool[""] for name in names if str(name) not in by_tool and "" in by_tool}
    level = float(np.quantile(logs, 0.25))
    return Expectation("self", tuple(middle.tolist()), justified, level, 0.0, spread, False, by_tool=by_tool)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a stage is held against: rates by column, where its peers' lower quartile lies, and their spread (None: its own)."""

    source: str
    rates: Array
    columns: Sequence[int]
    centre: float = 0.0
    spread: float | None = None
    peers: tuple[str, ...] = ()


def _judge(stage: Stage, ref: Reference) -> Expectation:
    columns = list(ref.columns)
    logs = _logs(stage, ref.rates, columns)
    level = float(np.quantile(logs, 0.25))
    bad = level - ref.centre > _limit(stage, ref.source)
    if stage.kind == "gap" and float(np.quantile(stage.service_ms, 0.25)) < NEAR_GAP_MS:
        bad = False
    full = np.zeros(6)
    full[np.array(columns)] = ref.rates
    justified = np.maximum(stage.work[:, columns] @ ref.rates, 0.05)
    justified = np.where(stage.known, justified, np.median(justified))
    own = lower_spread(logs)
    healthy = own if ref.spread is None else ref.spread if bad else max(own, ref.spread)
    return Expectation(
        ref.source, tuple(full.tolist()), justified, level, ref.centre, min(healthy, 0.6), bad, ref.peers
    )


def _limit(stage: Stage, source: str) -> float:
    """How far above the centre is bad: less far where a danger mark stands on nearly all runs."""
    limit = LEVEL_LIMIT.get(source, math.inf)
    marked = any(float(mark.on.mean()) > ALWAYS_ON for mark in marks(stage))
    return limit - LEVEL_LIMIT["peers"] + MARKED_LIMIT if marked else limit


def _fit(stages: Sequence[Stage], columns: Sequence[int], prior: Array | None, strength: float) -> Array:
    """Rates by column of `columns`; 0 for work that none of the stages declares."""
    work, time_ms, weight = [], [], []
    for stage in stages:
        rows = np.flatnonzero(stage.known if stage.known.any() else np.ones_like(stage.known))
        rows = rows[:: max(1, math.ceil(len(rows) / FIT_ROWS))]
        work.append(stage.work[rows][:, list(columns)])
        time_ms.append(stage.service_ms[rows])
        weight.append(np.full(len(rows), 1.0 / max(len(rows), 1)))
    table = np.concatenate(work)
    used = np.flatnonzero(table.any(axis=0))
    found = np.zeros(len(columns))
    start = None if prior is None else prior[used]
    found[used] = rates(table[:, used], np.concatenate(time_ms), np.concatenate(weight), start, strength)
    return found


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


def model_billions(model: str) -> float | None:
    """Parameters in billions as the model's name gives them; None where it does not."""
    found = size(model)
    return None if found is None else found.parameters / 1e9


def is_big(stage: Stage) -> bool:
    """On the core tier, or a model too big for a small answer."""
    billions = model_billions(stage.model)
    return stage.tier == "core" or (billions is not None and billions >= BIG_MODEL_B)


def small_purpose_on_big(stage: Stage) -> bool:
    """A choice, a check or a parse on a big model: its purpose needs a short answer whether it counts tokens or not."""
    return bool(stage.model) and stage.kind in SMALL_KINDS and is_big(stage)


def tier_rates(stage: Stage) -> Array:
    """Rates before anything is learnt: the roofline of card and model where both are known, else typical ones of the tier."""
    typical = TIER_RATES.get(stage.tier, TIER_RATES["middle"])
    floor = floor_rates_ms(stage.gpu, stage.model)
    if floor is None:
        return np.array(typical)
    return np.array([typical[0], floor[0] / PREFILL_SHARE, floor[1] / DECODE_SHARE])
