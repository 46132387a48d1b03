"""The roadmap as Markdown and JSON (HTML is next door). Pure: one Roadmap, one text.

Must stay true: every number that is shown came with the roadmap; nothing is computed for show.
"""

from __future__ import annotations

import json
import math
from typing import Any

from analytics import roadmap_html
from analytics.evidence_words import fact
from analytics.findings import iso
from analytics.roadmap_items import Item, Outcome, Roadmap
from analytics.roadmap_words import VERDICTS, evidence, gained, people, span, summary
from analytics.tickets_text import EFFORT_WORDS, cause, cell, where
from ingest.errors import BadSetting

FORMATS = ("md", "html", "json")


def render(roadmap: Roadmap, form: str = "md") -> str:
    """The roadmap in one of FORMATS. Raises BadSetting for another."""
    if form == "json":
        return json.dumps(document(roadmap), indent=2, ensure_ascii=False) + "\n"
    if form == "md":
        return markdown(roadmap)
    if form == "html":
        return roadmap_html.page(roadmap)
    raise BadSetting("format", form, f"one of {', '.join(FORMATS)}")


def document(roadmap: Roadmap) -> dict[str, Any]:
    """Plain values: `week, window, requests, failed_share, summary, top, next, last_week, tools, notes`."""
    return {
        "week": roadmap.week,
        "window": {"from": iso(roadmap.window.start), "to": iso(roadmap.window.end)},
        "analysed_until": iso(roadmap.analysed_until) if roadmap.analysed_until else None,
        "requests": roadmap.requests,
        "failed_share": roadmap.failed_share,
        "summary": summary(roadmap),
        "top": [_plain(item) for item in roadmap.top],
        "next": [_plain(item) for item in roadmap.then],
        "last_week": [_plain_outcome(item) for item in roadmap.before],
        "tools": list(roadmap.tools),
        "notes": list(roadmap.notes),
    }


def markdown(roadmap: Roadmap) -> str:
    """One page of Markdown."""
    days = f"{roadmap.window.start:%d %b} to {roadmap.window.end:%d %b %Y}"
    parts = [f"# Stability roadmap {roadmap.week}", f"_{days}, UTC_", f"**{summary(roadmap)}**"]
    parts += [f"> {note}" for note in roadmap.notes]
    if roadmap.top:
        parts.append("## Do this week")
        parts += [_section(item) for item in roadmap.top]
    parts.append("## What last week's items brought")
    parts.append(_before(roadmap))
    if roadmap.then:
        rows = [
            f"| {item.rank} | {cell(item.finding.title)} | {cell(item.finding.recommendation)} | {cell(item.owner or 'not assigned')} "
            f"| {item.finding.effort} | {cell(people(item))} | {span(item.lost_seconds)} |"
            for item in roadmap.then
        ]
        parts.append("## Next in line")
        parts.append(
            "| | what | change | owner | effort | hits | lost |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows)
        )
    if roadmap.tools:
        rows = [
            f"| {cell(str(row['tool']))} | {row['failed']:,} | {row['share']:.0%} | {row['without']:.0%} |"
            for row in roadmap.tools
        ]
        parts.append("## Failures by tool")
        parts.append(
            "| tool | failed requests | of all failures | failures fall by, without it and those above |\n|---|---|---|---|\n"
            + "\n".join(rows)
        )
    return "\n\n".join(parts) + "\n"


def _section(item: Item) -> str:
    finding = item.finding
    facts = [fact(found) for found in evidence(item)]
    lines = [
        f"### {item.rank}. {finding.title}",
        "",
        f"- **Change:** {finding.recommendation}",
        f"- **Owner:** {item.owner or 'not assigned (add a rule to owners.toml)'}",
        f"- **Effort:** {EFFORT_WORDS[finding.effort]}",
        f"- **Expected gain:** {gained(item)}",
        f"- **Verify:** {finding.verify}",
        f"- **Hits:** {people(item)}; {where(finding)}; cause {cause(finding)}",
    ]
    if facts:
        lines.append(f"- **Measured:** {'; '.join(facts)}")
    if item.also:
        lines.append(f"- **Goes with it:** {'; '.join(item.also)}")
    look = [f"ticket `{item.ticket}`"] if item.ticket else []
    look += [f"`stagescope trace {finding.trace_ids[0]}`"] if finding.trace_ids else []
    if look:
        lines.append(f"- **Look at:** {', '.join(look)}")
    return "\n".join(lines)


def _before(roadmap: Roadmap) -> str:
    if not roadmap.before:
        return "Nothing was on the roadmap of the week before."
    rows = [
        f"| {cell(item.item.finding.title)} | {cell(item.item.owner or 'not assigned')} | {VERDICTS[item.verdict]} | {cell(item.text)} |"
        for item in roadmap.before
    ]
    return "| item | owner | result | measured |\n|---|---|---|---|\n" + "\n".join(rows)


def _plain(item: Item) -> dict[str, Any]:
    return {
        "rank": item.rank,
        "key": item.finding.key,
        "kind": item.finding.kind,
        "title": item.finding.title,
        "subject": item.finding.subject,
        "cause": item.finding.cause,
        "change": item.finding.recommendation,
        "owner": item.owner,
        "effort": item.finding.effort,
        "users": item.users,
        "requests": item.requests,
        "lost_seconds": item.lost_seconds,
        "lost_low": item.lost_low,
        "lost_high": item.lost_high,
        "expected_saving_ms": item.finding.expected_saving_ms,
        "lost_seconds_per_1000_requests": item.per_thousand,
        "verify": item.finding.verify,
        "ticket": item.ticket,
        "also": list(item.also),
        "trace_ids": list(item.finding.trace_ids),
    }


def _plain_outcome(item: Outcome) -> dict[str, Any]:
    after = None if math.isnan(item.now_per_thousand) else item.now_per_thousand
    return {
        "key": item.item.finding.key,
        "title": item.item.finding.title,
        "owner": item.item.owner,
        "verdict": item.verdict,
        "before_per_1000": item.item.per_thousand,
        "after_per_1000": after,
        "text": item.text,
    }
