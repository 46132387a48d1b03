"""Whether a live run kept its pace: were requests sent when they were due, and did answers take longer as time went by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the load: when it was due, how late it was sent, how long the answer took (seconds), and its HTTP status (0: none came)."""

    due_s: float
    late_s: float
    took_s: float
    status: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Requests sent per second, p99 of their lateness in ms, and (p50, p99) of the answers' seconds in each third of the run."""

    sent_per_s: float
    late_p99_ms: float
    thirds: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        thirds = ", ".join(f"{p50:.2f}/{p99:.2f} s" for p50, p99 in self.thirds)
        return f"{self.sent_per_s:.1f} requests/s sent, {self.late_p99_ms:.0f} ms late at p99; answers p50/p99 by third of the run: {thirds}"


def pace_of(asked: Sequence[Asked], seconds: float) -> Pace:
    """The pace over a run of `seconds`; thirds nobody asked in are left out."""
    thirds = []
    for third in range(3):
        took = [item.took_s for item in asked if third <= 3 * item.due_s / seconds < third + 1]
        if took:
            thirds.append((quantile(took, 0.5), quantile(took, 0.99)))
    late = quantile([item.late_s for item in asked], 0.99) if asked else 0.0
    return Pace(len(asked) / seconds, late * 1e3, tuple(thirds))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
