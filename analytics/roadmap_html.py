"""The roadmap as one HTML file: no script, no font, no picture from elsewhere; breaks between items in print.

Must stay true: every text that came from outside is escaped.
"""

from __future__ import annotations

from html import escape

from analytics.evidence_words import fact
from analytics.roadmap_items import Item, Roadmap
from analytics.roadmap_words import VERDICTS, evidence, gained, people, span, summary
from analytics.tickets_text import EFFORT_WORDS, cause, where

_STYLE = """
:root{--ink:#1b2330;--soft:#5b6675;--line:#dfe4ea;--paper:#fff;--tint:#f5f7f9;--mark:#0b6b61;--bad:#a3341c;--good:#1d7a3e}
@media (prefers-color-scheme:dark){
:root{--ink:#e4e9ef;--soft:#9aa6b4;--line:#313b47;--paper:#141a21;
--tint:#1c242d;--mark:#4fc3b3;--bad:#f0907a;--good:#6fd08f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2.5rem 1.5rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0;text-wrap:balance}
h2{font-size:.82rem;letter-spacing:.08em;text-transform:uppercase;color:var(--soft);margin:2.6rem 0 .9rem}
h3{font-size:1.08rem;line-height:1.35;margin:0 0 .6rem;overflow-wrap:anywhere}
.days{color:var(--soft);margin:.3rem 0 1.2rem}
.lead{font-size:1.12rem;max-width:48rem;margin:0}
.note{border-left:3px solid var(--bad);padding:.1rem 0 .1rem .8rem;color:var(--soft);margin:1rem 0}
article{border-top:1px solid var(--line);padding:1.2rem 0 1rem;display:grid;grid-template-columns:2.2rem 1fr;gap:0 .6rem}
article>.rank{font-size:1.6rem;line-height:1.1;color:var(--mark);font-weight:600;font-variant-numeric:tabular-nums}
.change{margin:0 0 .9rem;font-size:1.02rem}
dl{display:grid;grid-template-columns:8.5rem 1fr;gap:.3rem .8rem;margin:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
code{font:.88em ui-monospace,"SF Mono",Menlo,Consolas,monospace;background:var(--tint);padding:.05em .35em;border-radius:3px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.93rem}
th{text-align:left;color:var(--soft);font-weight:500;border-bottom:1px solid var(--line);padding:.35rem .7rem .35rem 0;white-space:nowrap}
td{border-bottom:1px solid var(--line);padding:.5rem .7rem .5rem 0;vertical-align:top;overflow-wrap:anywhere}
td.s{white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.better{color:var(--good)}.worse{color:var(--bad)}.thin{color:var(--soft)}
@media (max-width:36rem){dl{grid-template-columns:1fr;gap:.1rem}dt{margin-top:.4rem}}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--tint:#fff;--mark:#000;--bad:#000;--good:#000}
@page{margin:16mm}body{font-size:10.5pt}main{max-width:none;padding:0}article,tr{break-inside:avoid}h2{break-after:avoid}}
"""


def page(roadmap: Roadmap) -> str:
    """A whole HTML document."""

    days = f"{roadmap.window.start:%d %B} to {roadmap.window.end:%d %B %Y}, UTC"
    parts = [
        f"<h1>Stability roadmap {escape(roadmap.week)}</h1><p class=days>{days}</p><p class=lead>{escape(summary(roadmap))}</p>",
        *(f"<p class=note>{escape(note)}</p>" for note in roadmap.notes),
    ]
    if roadmap.top:
        parts.append("<h2>Do this week</h2>" + "".join(map(_article, roadmap.top)))
    parts.append("<h2>What last week’s items brought</h2>" + _before(roadmap))
    if roadmap.then:
        parts.append("<h2>Next in line</h2>" + _then(roadmap))
    if roadmap.tools:
        parts.append("<h2>Failures by tool</h2>" + _tools(roadmap))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Stability roadmap {escape(roadmap.week)}</title><style>{_STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _article(item: Item) -> str:

    finding = item.finding
    facts = [
        ("Owner", escape(item.owner) or "not assigned: add a rule to <code>owners.toml</code>"),
        ("Effort", escape(EFFORT_WORDS[finding.effort])),
        ("Expected gain", escape(gained(item))),
        ("Verify", escape(finding.verify)),
        ("Hits", escape(people(item))),
        ("Where", _code(where(finding)) + escape(f"; cause {cause(finding)}")),
        ("Measured", "<br>".join(escape(fact(found)) for found in evidence(item))),
        ("Goes with it", "<br>".join(map(escape, item.also))),
        ("Ticket", f"<code>{escape(item.ticket)}</code>" if item.ticket else ""),
        ("Trace", f"<code>stagescope trace {escape(finding.trace_ids[0])}</code>" if finding.trace_ids else ""),
    ]
    body = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    return (
        f"<article><div class=rank>{item.rank}</div><div><h3>{escape(finding.title)}</h3>"
        f"<p class=change>{escape(finding.recommendation)}</p><dl>{body}</dl></div></article>"
    )


def _code(text: str) -> str:
    pieces = text.split("`")
    return "".join(
        f"<code>{escape(piece)}</code>" if place % 2 else escape(piece) for place, piece in enumerate(pieces)
    )


def _before(roadmap: Roadmap) -> str:

    if not roadmap.before:
        return "<p>Nothing was on the roadmap of the week before.</p>"
    rows = "".join(
        f"<tr><td>{escape(item.item.finding.title)}</td><td class=s>{escape(item.item.owner or 'not assigned')}</td>"
        f"<td class='s {item.verdict}'>{VERDICTS[item.verdict]}</td><td>{escape(item.text)}</td></tr>"
        for item in roadmap.before
    )
    return f"<div class=wide><table><tr><th>Item<th>Owner<th>Result<th>Measured</tr>{rows}</table></div>"


def _then(roadmap: Roadmap) -> str:

    rows = "".join(
        f"<tr><td class=n>{item.rank}</td><td>{escape(item.finding.title)}</td><td class=s>{escape(item.owner or 'not assigned')}</td>"
        f"<td class=s>{item.finding.effort}</td><td class=n>{item.users or item.requests:,}</td><td class=n>{span(item.lost_seconds)}</td></tr>"
        for item in roadmap.then
    )
    return (
        "<div class=wide><table><tr><th class=n><th>What<th>Owner<th>Effort<th class=n>Users or requests<th class=n>Lost</tr>"
        f"{rows}</table></div>"
    )


def _tools(roadmap: Roadmap) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(row['tool']))}</td><td class=n>{row['failed']:,}</td><td class=n>{row['share']:.0%}</td>"
        f"<td class=n>{row['without']:.0%}</td></tr>"
        for row in roadmap.tools
    )
    return (
        "<div class=wide><table><tr><th>Tool<th class=n>Failed requests<th class=n>Of all failures"
        f"<th class=n>Failures fall by, without it and those above</tr>{rows}</table></div>"
    )
