"""A ticket as a person reads it: what happens, whom it hits, what to change, how to prove it. Markdown.

Must stay true: text depends on the change alone, so that the same change writes the same bytes.
"""

from __future__ import annotations

import re

from analytics.evidence_words import measure, plain
from analytics.findings import Evidence, Finding
from analytics.tickets_plan import CLOSED, Change

BEGIN, END = "<!-- stagescope:begin -->", "<!-- stagescope:end -->"
EFFORT_WORDS = {
    "free": "free (settings or a small change, no new hardware)",
    "medium": "medium (days of engineering)",
    "costly": "costly (weeks, or new hardware)",
}


def markdown(change: Change, owner: str = "", extra: str = "") -> str:
    """The body between two marks; a person may write above and below them."""
    finding = change.finding
    parts = [f"{BEGIN}", f"<!-- {change.marker} -->"]
    if finding is not None:
        parts += _sections(finding, owner, extra if change.ticket.state != CLOSED else "")
    parts.append("### History\n" + "\n".join(f"- {line}" for line in change.ticket.history))
    parts.append(
        f"_Kept by Stagescope, environment `{change.ticket.environment}`, key `{change.key}`. Text outside this block stays._"
    )
    return "\n\n".join(parts) + f"\n\n{END}\n"


def merged(old: str, new: str) -> str:
    """`new` put where our block stands in `old`; everything else of `old` stays."""
    block = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END) + r"\n?", re.S)
    if not block.search(old):
        return new if not old.strip() else f"{old.rstrip()}\n\n{new}"
    return block.sub(lambda _: new, old, count=1)


def _sections(finding: Finding, owner: str, extra: str) -> list[str]:
    parts = [
        f"**{_sentence(finding)}**",
        "\n".join(
            [
                f"- **Where:** {where(finding)}",
                f"- **Cause:** {cause(finding)}",
                f"- **Owner:** {owner or 'not assigned (add a rule to owners.toml)'}",
                f"- **Effort:** {EFFORT_WORDS[finding.effort]}",
                f"- **Expected gain:** {gain(finding)}",
            ]
        ),
        f"### Change\n{finding.recommendation}",
        f"### How to verify\n{finding.verify}",
        "### Evidence\n| measured | value | in order |\n|---|---|---|\n" + "\n".join(map(_evidence, finding.evidence)),
    ]
    if finding.trace_ids:
        parts.append("### Traces\n" + "\n".join(f"- `stagescope trace {item}`" for item in finding.trace_ids[:5]))
    if finding.query:
        parts.append(f"### Query\n```sql\n{finding.query.strip()}\n```")
    if extra:
        parts.append(extra.strip())
    return parts


def where(finding: Finding) -> str:
    """Service, stage and what narrows it."""
    names = ("service", "stage", "tier", "model", "tool", "dimension")
    said = {f"{name}={finding.subject[name]}" for name in names if finding.subject.get(name)}
    return (
        ", ".join(
            f"{name} `{finding.subject[name]}`"
            for name in names
            if finding.subject.get(name) and not (name == "dimension" and finding.subject[name] in said)
        )
        or "the whole stack"
    )


def cause(finding: Finding) -> str:
    """The cause as words."""
    names = {"kv": "KV", "cpu": "CPU", "gpu": "GPU", "pcie": "PCIe"}
    return " ".join(names.get(word, word) for word in finding.cause.split("_"))


def gain(finding: Finding) -> str:
    """What the change should bring, with its interval."""
    span = f"{_seconds(finding.lost_low)} to {_seconds(finding.lost_high)}"
    each = f", {finding.expected_saving_ms:,.0f} ms an affected request" if finding.expected_saving_ms else ""
    days = finding.window.seconds / 86400
    return f"{span} of user time over {days:.3g} days{each}"


def _seconds(value: float) -> str:
    return f"{value / 3600:,.1f} h" if value >= 5400 else f"{value / 60:,.0f} min" if value >= 90 else f"{value:,.0f} s"


def _sentence(finding: Finding) -> str:
    users = f" and {finding.users:,} users" if finding.users else ""
    span = f"{finding.window.start:%d %b %H:%M} to {finding.window.end:%d %b %H:%M} UTC"
    return f"{finding.requests:,} requests{users} hit between {span}; {_seconds(finding.lost_seconds)} lost."


def _evidence(item: Evidence) -> str:
    usual = "" if item.expected is None else measure(item.expected, "" if isinstance(item.expected, str) else item.unit)
    return f"| {cell(plain(item.name))} | {cell(measure(item.value, item.unit))} | {cell(usual)} |"


def cell(text: str) -> str:
    """Safe inside a Markdown table: one line, no pipes, no markup of its own."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat.replace("<", "&lt;").replace(">", "&gt;")
