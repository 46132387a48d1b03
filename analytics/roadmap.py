"""The weekly stability roadmap: what to change this week, who does it, what it brings, and what last week's items really brought.

Must stay true: it reads only what was concluded in that week, so a past week reads the same for ever.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pandas as pd

from analytics.failures_impact import tools
from analytics.findings import EFFORTS, Finding, Window, iso
from analytics.roadmap_items import Item, Outcome, Roadmap
from analytics.roadmap_owners import NOBODY, Owners
from analytics.roadmap_render import FORMATS, render
from ingest.errors import BadSetting
from ingest.store import Store

TOP, NEXT = 3, 7

__all__ = ["FORMATS", "Item", "Outcome", "Roadmap", "build", "render", "week_of", "week_window"]


def build(store: Store, week: str | None = None, *, owners: Owners = NOBODY, now: datetime | None = None) -> Roadmap:
    """The roadmap of ISO `week` such as 2026-W48 (default: the week of `now`). Raises BadSetting for another shape."""
    name = week or week_of(now or datetime.now(UTC))
    window = week_window(name)
    items = _items(store, window, owners)
    last = Window(window.start - timedelta(days=7), window.start)
    before = _items(store, last, owners)[:TOP]
    judged = _judged(store, window)
    requests, failed = _traffic(store, judged or window)
    notes = [] if judged else [f"nothing was analysed in {name}: run `stagescope analyze --from {iso(window.start)}`"]
    return Roadmap(
        week=name,
        window=window,
        requests=requests,
        failed_share=failed,
        analysed_until=judged.end if judged else None,
        top=tuple(items[:TOP]),
        then=tuple(items[TOP : TOP + NEXT]),
        before=tuple(_outcome(item, items, judged is not None) for item in before),
        tools=tuple(tools(store, judged or window)),
        notes=tuple(notes),
        judged=judged,
    )


def week_of(moment: datetime) -> str:
    year, week, _ = moment.astimezone(UTC).isocalendar()
    return f"{year}-W{week:02d}"


def week_window(week: str) -> Window:
    """Monday 00:00 UTC to the next. Raises BadSetting."""
    try:
        start = datetime.strptime(f"{week}-1", "%G-W%V-%u").replace(tzinfo=UTC)
    except ValueError:
        raise BadSetting("week", week, "an ISO week such as 2026-W48") from None
    return Window(start, start + timedelta(days=7))


def _items(store: Store, window: Window, owners: Owners) -> list[Item]:
    """All findings concluded in the window, one item a stage and cause, the most users × seconds first."""
    tickets = _tickets(store)
    groups: dict[tuple[str, str, str], list[Item]] = defaultdict(list)
    for runs in _concluded(store, window).values():
        if item := _total(store, runs, window, owners, tickets):
            subject = item.finding.subject
            same = (subject.get("service", ""), subject.get("stage", ""), item.finding.cause)
            groups[same if item.finding.cause != "unknown" else (item.finding.key, "", "")].append(item)
    merged = [_merge(sorted(group, key=lambda item: (-item.score, item.finding.key))) for group in groups.values()]
    ranked = sorted(merged, key=lambda item: (-item.score, EFFORTS.index(item.finding.effort), item.finding.key))
    return [replace(item, rank=place) for place, item in enumerate(ranked, 1)]


def _merge(group: Sequence[Item]) -> Item:
    first = group[0]
    return replace(
        first,
        users=max(item.users for item in group),
        requests=max(item.requests for item in group),
        also=tuple(item.finding.title for item in group[1:]),
    )


def _concluded(store: Store, window: Window) -> dict[str, list[Finding]]:
    """Per key the findings of windows that end in the week, longest window first, then the latest."""
    rows = store.read(
        "SELECT Key, Body FROM findings WHERE WindowTo > {start:DateTime64(3)} AND WindowTo <= {end:DateTime64(3)} "
        "ORDER BY dateDiff('second', WindowFrom, WindowTo) DESC, WindowTo DESC, Key",
        start=window.start,
        end=window.end,
    )
    out: dict[str, list[Finding]] = defaultdict(list)
    for row in rows.itertuples():
        out[str(row.Key)].append(Finding.from_json(orjson.loads(str(row.Body))))
    return out


def _total(
    store: Store, runs: Sequence[Finding], window: Window, owners: Owners, tickets: dict[str, str]
) -> Item | None:
    """Sum over windows that do not overlap. None when the last word of the week is that it is resolved."""
    newest = max(runs, key=lambda item: (item.window.end, item.window.start))
    if newest.state == "resolved":
        return None
    chosen: list[Finding] = []
    for item in runs:
        apart = all(item.window.end <= other.window.start or item.window.start >= other.window.end for other in chosen)
        if item.state != "resolved" and apart:
            chosen.append(item)
    lead = max(chosen, key=lambda item: (item.window.seconds, item.window.end))
    lost = sum(item.lost_seconds for item in chosen)
    requests = sum(_requests(store, item.window) for item in chosen)
    return Item(
        rank=0,
        finding=lead,
        owner=owners.of(lead),
        users=max(item.users for item in chosen),
        requests=sum(item.requests for item in chosen),
        lost_seconds=lost,
        lost_low=sum(item.lost_low for item in chosen),
        lost_high=sum(item.lost_high for item in chosen),
        per_thousand=1000 * lost / max(1, requests),
        seconds=sum(item.window.seconds for item in chosen),
        ticket=tickets.get(lead.key, ""),
    )


def _requests(store: Store, window: Window) -> int:
    return int(
        store.value(
            "SELECT uniq(TraceId) FROM stage_runs WHERE Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)}",
            start=window.start,
            end=window.end,
        )
    )


def _tickets(store: Store) -> dict[str, str]:
    rows = store.read("SELECT Key, any(ExternalId) AS id FROM tickets WHERE ExternalId != '' GROUP BY Key")
    return dict(zip(rows["Key"].astype(str), rows["id"].astype(str), strict=True)) if len(rows) else {}


def _traffic(store: Store, window: Window) -> tuple[int, float]:
    """(requests, share of them with a failure that reached the user)."""
    requests = _requests(store, window)
    failed = int(
        store.value(
            "SELECT uniqExact(TraceId) FROM failures WHERE Echo = 0 AND Recovered = 0 "
            "AND Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)}",
            start=window.start,
            end=window.end,
        )
    )
    return requests, failed / max(1, requests)


def _judged(store: Store, window: Window) -> Window | None:
    """From the start of the earliest to the end of the latest analysis that ended in the week; None without any."""
    found = store.read(
        "SELECT min(WindowFrom) AS start, max(WindowTo) AS until, count() AS n FROM analyzer_runs "
        "WHERE WindowTo > {start:DateTime64(3)} AND WindowTo <= {end:DateTime64(3)}",
        start=window.start,
        end=window.end,
    ).iloc[0]
    return Window(_utc(found["start"]), _utc(found["until"])) if int(found["n"]) else None


def _utc(value: object) -> datetime:
    stamp = pd.Timestamp(str(value))
    moment: datetime = (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).to_pydatetime(
        warn=False
    )
    return moment


def _outcome(item: Item, now: Sequence[Item], analysed: bool) -> Outcome:
    """What an item of last week costs this week, per thousand requests, so that more traffic is not taken for worse."""
    if not analysed:
        return Outcome(item, "thin", math.nan, "not looked at again yet")
    same = next((other for other in now if other.finding.key == item.finding.key), None)
    after = same.per_thousand if same else 0.0
    change = after / item.per_thousand - 1 if item.per_thousand > 0 else 0.0
    verdict = "better" if change <= -0.5 else "worse" if change >= 0.5 else "same"
    text = (
        "gone: not found this week"
        if same is None
        else f"{item.per_thousand:.2f} → {after:.2f} s lost per 1,000 requests ({change:+.0%})"
    )
    return Outcome(item, verdict, after, text)
