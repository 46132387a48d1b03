"""A model server's own span is no stage: its time goes to the stage that asked it, and what it knows is lent to that stage (docs/stages.md).

Must stay true: times are only moved between spans of one trace, so the critical times of a tree still add up to its root's duration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.stages_times import Times
from analytics.stages_tree import NONE, Flags, Ints

REACH = 3  # client spans of instrumented HTTP libraries may stand between the stage and the server


@dataclass(frozen=True, slots=True)
class Engine:
    """Per span that stays (n,): own and critical ns after the move, and the one server span that lends its facts, NONE where there is
    none or several (their sums would mean nothing)."""

    self_ns: Ints
    critical_ns: Ints
    lender: Ints


def fold(found: Times, serves: Flags, asks: Flags) -> Engine:
    """Move the time of each span in `serves` to the nearest span above it, up to REACH levels, that `asks` a model. Flags are (n,).

    A server span with no such span above it stays a stage of its own.
    """
    own, critical = found.self_ns.copy(), found.critical_ns.copy()
    lender = np.full(len(own), NONE, np.int64)
    served = np.flatnonzero(serves)
    asker = _askers(found.trees.parent, served, asks & ~serves)
    served, asker = served[asker != NONE], asker[asker != NONE]
    np.add.at(own, asker, own[served])
    np.add.at(critical, asker, critical[served])
    own[served] = critical[served] = 0
    np.minimum(own, found.trees.spans.duration_ns, out=own)
    alone = np.bincount(asker, minlength=len(own))[asker] == 1
    lender[asker[alone]] = served[alone]
    return Engine(own, critical, lender)


def _askers(parent: Ints, served: Ints, asks: Flags) -> Ints:
    """For each of `served` the index of the nearest span above that asks, or NONE."""
    asker = np.full(len(served), NONE, np.int64)
    above = parent[served]
    for _ in range(REACH):
        here = np.flatnonzero((asker == NONE) & (above != NONE))
        hit = here[asks[above[here]]]
        asker[hit] = above[hit]
        above = np.where(above == NONE, NONE, parent[above])
    return asker
