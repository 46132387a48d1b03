"""The sentences and figures that all forms of the roadmap share.

Must stay true: every number that is shown came with the roadmap.
"""

from __future__ import annotations

from typing import Any

from analytics.roadmap_items import Item, Roadmap

VERDICTS = {"better": "better", "same": "no real change", "worse": "worse", "thin": "cannot be told yet"}


def summary(roadmap: Roadmap) -> str:
    """Two sentences that a lead can forward."""
    if not roadmap.requests:
        return f"No traffic was stored for {roadmap.week}."
    judged = roadmap.judged or roadmap.window
    when = f" in the {span(judged.seconds)} up to {judged.end:%a %d %b %H:%M} UTC" if judged != roadmap.window else ""
    head = f"{roadmap.requests:,} requests{when}, {roadmap.failed_share:.1%} of them failed for the user."
    if not roadmap.top:
        return f"{head} Nothing was found that needs a change."
    lost = sum(item.lost_seconds for item in roadmap.top)
    users = max(item.users for item in roadmap.top)
    hit = f"; the widest of them hits {users:,} users" if users else ""
    count = "The change below wins" if len(roadmap.top) == 1 else f"The {len(roadmap.top)} changes below win"
    failing = sum(item.requests for item in roadmap.top if item.finding.kind == "failure")
    answer = f" and answer up to {failing:,} requests that now fail" if failing else ""
    return f"{head} {count} back up to {span(lost)} of user time{answer}{hit}."


def span(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds >= 3 * 86400:
        return f"{seconds / 86400:,.3g} days"
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.0f} min" if seconds >= 90 else f"{seconds:,.0f} s"


def people(item: Item) -> str:
    """Whom it hits."""
    requests = f"{item.requests:,} requests"
    return f"{item.users:,} users, {requests}" if item.users else f"{requests} (users are not known)"


def gained(item: Item) -> str:
    """What the change should bring: requests answered, user time with its interval, and time a request."""
    when = "a week" if item.whole_week else f"in the {span(item.seconds)} analysed"
    time = f"{span(item.lost_seconds)} of user time {when} ({span(item.lost_low)} to {span(item.lost_high)})"
    if item.finding.kind == "failure":
        return f"{item.requests:,} requests {when} answered instead of failing; {time}"
    each = (
        f", about {item.finding.expected_saving_ms:,.0f} ms an affected request"
        if item.finding.expected_saving_ms
        else ""
    )
    return f"{time}{each}"


def evidence(item: Item, most: int = 5) -> list[Any]:
    """The facts worth a line: those with a value that would be in order first; never what the item says elsewhere."""
    facts = [
        fact
        for fact in item.finding.evidence
        if fact.name not in _SAID_ELSEWHERE and (fact.name, fact.value) != ("trend", "unknown") and not _in_order(fact)
    ]
    return sorted(facts, key=lambda fact: fact.expected is None)[:most]


def _in_order(fact: Any) -> bool:
    """Whether the value is within 5 % of what it should be, which explains nothing."""
    if isinstance(fact.value, str) or not isinstance(fact.expected, int | float):
        return False
    return bool(abs(fact.value - fact.expected) <= 0.05 * abs(fact.expected))


_SAID_ELSEWHERE = frozenset(
    ("message", "scene", "error type", "first seen", "failed requests", "failed stage runs", "metric to watch")
)
