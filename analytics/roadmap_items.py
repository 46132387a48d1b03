"""What a roadmap is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from analytics.findings import Finding, Window


@dataclass(frozen=True, slots=True)
class Item:
    """One change worth making: the leading finding of a stage and cause, with its whole impact of the week."""

    rank: int
    finding: Finding
    owner: str
    users: int
    requests: int
    lost_seconds: float
    lost_low: float
    lost_high: float
    per_thousand: float
    seconds: float
    ticket: str = ""
    also: tuple[str, ...] = ()

    @property
    def whole_week(self) -> bool:
        """Whether the windows behind the numbers cover about seven days."""
        return 6.5 * 86400 <= self.seconds <= 7.5 * 86400

    @property
    def score(self) -> float:
        """Users hit × seconds that can be won back; requests stand in where users are not known."""
        return max(1, self.users or self.requests) * max(self.lost_seconds, 0.001)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An item of last week's top and what became of it."""

    item: Item
    verdict: str
    now_per_thousand: float
    text: str


@dataclass(frozen=True, slots=True)
class Roadmap:
    """`top` three items, `then` the next in line, `before` what last week's top brought. `judged` is the time that the analyses
    ending in the week looked at, of which `requests` and `failed_share` speak; None when there was none."""

    week: str
    window: Window
    requests: int
    failed_share: float
    analysed_until: datetime | None
    top: tuple[Item, ...]
    then: tuple[Item, ...]
    before: tuple[Outcome, ...]
    tools: tuple[dict[str, Any], ...] = field(default=())
    notes: tuple[str, ...] = ()
    judged: Window | None = None
