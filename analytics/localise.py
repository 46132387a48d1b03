"""Which service makes requests slow since when: busy, slow to send, or both, weighed over all its stages and edges.

Must stay true: nothing here knows any data set; a window, healthy blocks and stage runs are all it sees (docs/localise.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from analytics.localise_score import Shift, shift

BUSY, EGRESS, ANY = "busy", "egress", "any"
LOCAL, REQUEST, RESPONSE, GAP = "local", "request", "response", "gap"
LEAST_SHARE = 0.03
METRIC_CAP = 8.0


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a service, or one leg of the edge caller → callee."""

    kind: str
    service: str
    name: str
    callee: str = ""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A service with its score (log scale), how it is slow, the seconds a window it costs and its share of all excess."""

    service: str
    score: float
    how: str
    excess_s: float
    share: float
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Evidence from metrics: `busy` by service (CPU), `late` by (caller, callee): calls longer for the caller than for the callee."""

    busy: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def services(self) -> set[str]:
        return set(self.busy) | {name for pair in self.late for name in pair}


def localise(runs: pd.DataFrame, metrics: Metrics | None = None) -> list[Suspect]:
    """Services by how well a fault in them explains the window, best first.

    `runs`: one row a run: `service, stage, callee, trace, block, own_ns, request_ns, response_ns, gap_ns`; `block` −1 is the
    window, others number the healthy blocks; `callee` is '' for a run that is no gap, whose `own_ns` is the smaller of its
    self time and its time on the critical path. `metrics` adds what resource and call metrics say.
    """
    told = metrics or Metrics()
    shifts = measure(runs)
    services = sorted(
        {part.service for part in shifts} | {part.callee for part in shifts if part.callee} | told.services()
    )
    excess = impact(shifts, services)
    total = sum(excess.values()) or 1.0
    found = []
    for service in services:
        options = hypotheses(service, shifts, told)
        how = max(options, key=lambda name: options[name])
        share = excess[service] / total
        score = options[how] + float(np.log(share + LEAST_SHARE))
        found.append(Suspect(service, score, how, excess[service] / 1e9, share, options))
    return sorted(found, key=lambda suspect: (-suspect.score, suspect.service))


def measure(runs: pd.DataFrame) -> dict[Part, Shift]:
    """The shift of every stage and of both legs and the whole of every edge."""
    found: dict[Part, Shift] = {}
    edges = runs["callee"] != ""
    for (service, stage), group in runs[~edges].groupby(["service", "stage"], observed=True, sort=True):
        _add(found, Part(LOCAL, str(service), str(stage)), group, "own_ns")
    for (service, callee, stage), group in runs[edges].groupby(
        ["service", "callee", "stage"], observed=True, sort=True
    ):
        for kind, column in ((REQUEST, "request_ns"), (RESPONSE, "response_ns"), (GAP, "gap_ns")):
            _add(found, Part(kind, str(service), str(stage), str(callee)), group, column)
    return found


def _add(found: dict[Part, Shift], part: Part, group: pd.DataFrame, column: str) -> None:
    new = (group["block"] == -1).to_numpy()
    values = group[column].to_numpy(float)
    traces = int(group["trace"][new].nunique())
    result = shift(values[new], max(traces, 1), values[~new], group["block"].to_numpy()[~new])
    if result is not None:
        found[part] = result


def hypotheses(service: str, shifts: Mapping[Part, Shift], metrics: Metrics) -> dict[str, float]:
    """Sum of the evidence that each story of the service predicts. Its other stages being quiet counts against it."""
    local = sum(s.evidence for p, s in shifts.items() if p.kind == LOCAL and p.service == service)
    legs = {
        (kind, inward): sum(
            s.evidence for p, s in shifts.items() if p.kind == kind and (p.callee if inward else p.service) == service
        )
        for kind in (REQUEST, RESPONSE)
        for inward in (True, False)
    }
    served = legs[REQUEST, True] + legs[RESPONSE, False]
    sent = legs[RESPONSE, True] + legs[REQUEST, False]
    metric = float(np.clip(metrics.busy.get(service, 0.0), 0, METRIC_CAP))
    late = _late(service, metrics.late)
    return {BUSY: local + served + metric, EGRESS: sent + late, ANY: local + served + sent + max(metric, late)}


def _late(service: str, edges: Mapping[tuple[str, str], float]) -> float:
    """Evidence that the service answers late (calls into it) or calls late (calls out of it), by metrics of calls alone."""
    inward = sum(found for (_, callee), found in edges.items() if callee == service)
    outward = sum(found for (caller, _), found in edges.items() if caller == service)
    return float(np.clip(max(inward, outward), 0, METRIC_CAP))


def impact(shifts: Mapping[Part, Shift], services: Sequence[str]) -> dict[str, float]:
    """Excess ns over the window by service, two standard errors taken off; that of edges is split between the two ends
    so that few services explain all edges (non-negative least squares)."""
    total = dict.fromkeys(services, 0.0)
    for part, found in shifts.items():
        if part.kind == LOCAL:
            total[part.service] += _sure(found) * found.runs
    edges = [(part, found) for part, found in shifts.items() if part.kind == GAP]
    if edges:
        place = {service: i for i, service in enumerate(services)}
        matrix = np.zeros((len(edges), len(services)))
        for row, (part, _) in enumerate(edges):
            matrix[row, place[part.service]] = matrix[row, place[part.callee]] = 1.0
        weight = np.sqrt([found.runs for _, found in edges])
        per_run, _ = nnls(matrix * weight[:, None], weight * np.array([_sure(found) for _, found in edges]))
        for part, found in edges:
            ends = per_run[place[part.service]], per_run[place[part.callee]]
            known = sum(ends)
            for service, mine in ((part.service, ends[0]), (part.callee, ends[1])):
                total[service] += (mine / known if known > 0 else 0.5) * _sure(found) * found.runs
    return total


def _sure(found: Shift) -> float:
    return max(found.excess_ns - 2 * found.excess_error_ns, 0.0)
