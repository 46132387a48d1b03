"""Commands that look for what is slow, and show it: analyze, findings, sql."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.settings import Settings
from ui import text
from ui.command import DONE, Command, emit, json_option, reading, say, time_options, window, writing

if TYPE_CHECKING:
    from analytics.findings import Finding

KINDS = ("slow", "failure", "health", "capacity")


def analyze_options(parser: ArgumentParser) -> None:
    time_options(parser)
    json_option(parser)


def analyze(args: Namespace, settings: Settings) -> int:
    """Run every analyzer once and store what they find."""
    from analytics import run, stages
    from ingest import mapping

    with writing(settings) as store:
        say("building stage runs …")
        stages.build_touched(store, mapping.load(settings.stages or None))
        span = window(args, store, "7d")
        say(f"analyzing {text.moment(span.start)} to {text.moment(span.end)} …")
        found = run.run(store, span)
    if args.json:
        return emit([finding.to_json() for finding in found])
    print(f"window {text.moment(span.start)} to {text.moment(span.end)}")
    print_findings(found)
    return DONE


def findings_options(parser: ArgumentParser) -> None:
    parser.add_argument("--kind", choices=KINDS, help="only findings of this kind")
    json_option(parser)


def findings(args: Namespace, settings: Settings) -> int:
    """Print the latest findings, worst first."""
    from analytics import overview, run

    with reading(settings) as store:
        found = run.latest(store, args.kind)
        looked = overview.last_look(store)
    if args.json:
        return emit([finding.to_json() for finding in found])
    if looked is None:
        print("nobody has looked yet: run `stagescope analyze`")
        return DONE
    print(f"as of {text.moment(looked)}")
    print_findings(found)
    return DONE


def print_findings(found: Sequence[Finding]) -> None:
    """Findings as an engineer reads them at night: what, how much, why, what to do, how to check."""
    from analytics import evidence_words

    if not found:
        print("no findings: nothing looks slow without reason, and nothing fails in a pattern")
    for place, finding in enumerate(found, 1):
        print(f"\n{place}. [{finding.severity}] {text.printable(finding.title)}")
        print(
            f"   cause     {finding.cause}"
            + (f", also {', '.join(finding.other_causes)}" if finding.other_causes else "")
        )
        print(f"   subject   {', '.join(f'{key} {value}' for key, value in finding.subject.items() if value)}")
        if finding.lost_seconds:
            low, high = text.seconds(finding.lost_low), text.seconds(finding.lost_high)
            print(
                f"   lost      {text.seconds(finding.lost_seconds)} ({low} to {high}) over {text.count(finding.requests)} requests, "
                f"{text.count(finding.users)} users; {text.percent(finding.share_of_e2e_p95)} of end-to-end p95"
            )
        else:
            print(f"   affects   {text.count(finding.requests)} requests, {text.count(finding.users)} users")
        for item in finding.evidence:
            print(f"   evidence  {text.printable(evidence_words.fact(item))}")
        print(f"   do        {text.printable(finding.recommendation)} [{finding.effort}]")
        if finding.expected_saving_ms:
            print(f"   gives     about {text.ms(finding.expected_saving_ms)} less on each affected request")
        print(f"   check     {text.printable(finding.verify)}")
        if finding.trace_ids:
            print(f"   traces    {' '.join(finding.trace_ids[:3])}")
        print(f"   key       {finding.key}, {finding.state}, first seen {text.moment(finding.first_seen)}")


COMMANDS = (
    Command(
        "analyze",
        "run all analyzers once over a window and store what they find",
        "stagescope analyze --last 7d",
        analyze_options,
        analyze,
    ),
    Command(
        "findings",
        "the latest findings, worst first",
        "stagescope findings --kind slow --json",
        findings_options,
        findings,
    ),
)
