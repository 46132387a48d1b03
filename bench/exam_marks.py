"""Marks of the exam: what was expected, what was found, and the rates. What a scenario calls optional counts neither way.

Must stay true: a sheet is healthy only if its scenario expects nothing at all; then every finding, slow or failed, is a false flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

TARGETS = {"precision": 0.95, "recall": 0.95, "cause_accuracy": 0.90, "cluster_recall": 0.95, "recall_always_bad": 0.85}
BLIND_TARGETS = {"precision": 0.90}
# A fault that leaves out less than this share of the run at either end lasts from the first second to the last.
WHOLE = 0.02


class Said(NamedTuple):
    """What one slow finding said, in short."""

    stage: str
    cause: str
    dimension: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One sitting as it is kept: the truth, the slow findings worst first, the scenes of the failure findings, and the slow findings
    with tokens hidden on some stages (None: not asked). `spent_s` are seconds for making the store, loading, and answering."""

    scenario: str
    seed: int
    truth: dict[str, Any]
    findings: tuple[Said, ...]
    scenes: tuple[str, ...] = ()
    hidden: tuple[Said, ...] | None = None
    spent_s: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        kept = {key: self.truth[key] for key in ("start", "end", "faults", "expect")}
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "truth": kept,
            "findings": [list(said) for said in self.findings],
            "scenes": list(self.scenes),
            "hidden": None if self.hidden is None else [list(said) for said in self.hidden],
            "spent_s": [round(value, 2) for value in self.spent_s],
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Result:
        hidden = body["hidden"]
        return Result(
            body["scenario"],
            body["seed"],
            body["truth"],
            tuple(Said(*said) for said in body["findings"]),
            tuple(body["scenes"]),
            None if hidden is None else tuple(Said(*said) for said in hidden),
            tuple(body["spent_s"]),
        )

    def sheets(self) -> Iterator[Sheet]:
        """The sheet to mark, and the one with tokens hidden where that was asked."""
        yield Sheet(self.scenario, self.seed, self.truth, self.findings, self.scenes)
        if self.hidden is not None:
            yield Sheet(self.scenario, self.seed, self.truth, self.hidden, self.scenes, blind=True)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One answer to mark: the scenario's truth (its `truth.json`), the slow findings, worst first, and the scenes of failures."""

    scenario: str
    seed: int
    truth: dict[str, Any]
    findings: tuple[Said, ...]
    scenes: tuple[str, ...] = ()
    blind: bool = False

    @property
    def expected(self) -> list[tuple[str, str]]:
        """(stage, cause) that must be found, each once."""
        wanted = [item for item in self.truth.get("expect", []) if item.get("stage") and not item.get("optional")]
        return list(dict.fromkeys((item["stage"], item.get("cause", "")) for item in wanted))

    @property
    def optional(self) -> set[str]:
        return {item["stage"] for item in self.truth.get("expect", []) if item.get("stage") and item.get("optional")}

    @property
    def healthy(self) -> bool:
        return not self.truth.get("expect")

    @property
    def expected_clusters(self) -> list[str]:
        """Failure scenes that must be among the clusters, each once."""
        wanted = [item for item in self.truth.get("expect", []) if item.get("cluster") and not item.get("optional")]
        return list(dict.fromkeys(item["cluster"] for item in wanted))

    def missed_clusters(self) -> list[str]:
        return [cluster for cluster in self.expected_clusters if cluster not in self.scenes]

    def always_bad(self) -> list[tuple[str, str]]:
        """Expected ones that were so from the first second to the last, everywhere: by a fault as long as the run, or by no fault
        that the truth times (they are built that way)."""
        found = []
        for stage, cause in self.expected:
            faults = [fault for fault in self.truth.get("faults", []) if fault.get("stage") == stage]
            if not faults:  # the way to a stage, not the stage itself
                faults = [fault for fault in self.truth.get("faults", []) if fault.get("cause") == cause]
            if not faults or any(self._lasts(fault) for fault in faults):
                found.append((stage, cause))
        return found

    def _lasts(self, fault: dict[str, Any]) -> bool:
        if fault.get("where"):
            return False
        ends = (self.truth["start"], self.truth["end"], fault["start"], fault["end"])
        begin, end, first, last = (datetime.fromisoformat(one).timestamp() for one in ends)
        slack = WHOLE * (end - begin)
        return first <= begin + slack and last >= end - slack

    def causes(self, stage: str) -> list[str]:
        """Causes named for a stage, worst finding first."""
        return [finding.cause for finding in self.findings if finding.stage == stage]

    def false(self) -> list[Said]:
        stages = {stage for stage, _ in self.expected} | self.optional
        return [finding for finding in self.findings if finding.stage not in stages]

    def missed(self) -> list[tuple[str, str]]:
        return [(stage, cause) for stage, cause in self.expected if not self.causes(stage)]

    def wrong_cause(self) -> list[tuple[str, str]]:
        """Expected ones that were found under another name. Several causes on one stage: each may be any of its findings."""
        several = {stage for stage, _ in self.expected if sum(name == stage for name, _ in self.expected) > 1}
        return [
            (stage, cause)
            for stage, cause in self.expected
            if self.causes(stage) and cause not in (self.causes(stage) if stage in several else self.causes(stage)[:1])
        ]

    def places(self) -> tuple[int, int]:
        """(faults whose place was named, faults with a place): `where` against the findings' dimension."""
        named = total = 0
        for fault in self.truth.get("faults", []):
            where = {
                key: value
                for key, value in (fault.get("where") or {}).items()
                if key in ("region", "device", "user_tier", "version", "host")
            }
            found = [
                f
                for f in self.findings
                if f.stage == fault.get("stage") and f.cause in ("dimension_specific", "regression")
            ]
            if not where or not found:
                continue
            total += 1
            said = " ".join(f.dimension for f in found)
            named += any(
                f"{key}={one}" in said
                for key, value in where.items()
                for one in ([value] if isinstance(value, str) else value)
            )
        return named, total

    def line(self) -> str:
        """One line for people."""
        wrong = [f"{stage}: {cause} called {self.causes(stage)[0]}" for stage, cause in self.wrong_cause()]
        parts = [
            f"false {[(f.stage, f.cause) for f in self.false()]}" if self.false() else "",
            f"missed {self.missed()}" if self.missed() else "",
            f"wrong {wrong}" if wrong else "",
            f"missed clusters {self.missed_clusters()}" if self.missed_clusters() else "",
            f"failures in good health {sorted(self.scenes)}" if self.healthy and self.scenes else "",
        ]
        text = "; ".join(part for part in parts if part) or "as expected"
        name = f"{self.scenario} (tokens hidden)" if self.blind else self.scenario
        return f"{name:<40} seed {self.seed:<5} expected {len(self.expected)}, found {len(self.findings)}: {text}"


def report(results: Sequence[Result]) -> dict[str, Any]:
    """The rates over all sittings, the same with tokens hidden, and each scenario's share."""
    sheets = [sheet for result in results for sheet in result.sheets()]
    seen, blind = [s for s in sheets if not s.blind], [s for s in sheets if s.blind]
    rates = _rates(seen)
    hidden = _rates(blind)
    passed = rates["false_flags_on_healthy"] == 0 and all(rates[name] >= floor for name, floor in TARGETS.items())
    return {
        "scenarios": len({sheet.scenario for sheet in seen}),
        "sittings": len(seen),
        **rates,
        "tokens_hidden": {"sittings": len(blind), **hidden},
        "passed": passed and all(hidden[name] >= floor for name, floor in BLIND_TARGETS.items()),
        "per_scenario": _per_scenario(seen),
    }


def _rates(sheets: Sequence[Sheet]) -> dict[str, Any]:
    false = sum(len(sheet.false()) for sheet in sheets)
    right = sum(len(sheet.findings) - len(sheet.false()) for sheet in sheets)
    expected = sum(len(sheet.expected) for sheet in sheets)
    missed = sum(len(sheet.missed()) for sheet in sheets)
    wrong = sum(len(sheet.wrong_cause()) for sheet in sheets)
    healthy = [sheet for sheet in sheets if sheet.healthy]
    always = [(sheet, one) for sheet in sheets for one in sheet.always_bad()]
    clusters = sum(len(sheet.expected_clusters) for sheet in sheets)
    lost = sum(len(sheet.missed_clusters()) for sheet in sheets)
    places = [sheet.places() for sheet in sheets]
    return {
        "precision": _rate(right, right + false),
        "recall": _rate(expected - missed, expected),
        "cause_accuracy": _rate(expected - missed - wrong, expected - missed),
        "cluster_recall": _rate(clusters - lost, clusters),
        "recall_always_bad": _rate(sum(bool(sheet.causes(stage)) for sheet, (stage, _) in always), len(always)),
        "place_accuracy": _rate(sum(named for named, _ in places), sum(total for _, total in places)),
        "expected": expected,
        "always_bad": len(always),
        "findings": right + false,
        "clusters": clusters,
        "healthy_sittings": len(healthy),
        "false_flags_on_healthy": sum(len(sheet.findings) + len(sheet.scenes) for sheet in healthy),
    }


def _per_scenario(sheets: Sequence[Sheet]) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for sheet in sheets:
        row = out.setdefault(
            sheet.scenario,
            {"sittings": 0, "expected": 0, "missed": [], "wrong_cause": [], "false": [], "missed_clusters": []},
        )
        row["sittings"] += 1
        row["expected"] += len(sheet.expected)
        row["missed"] += [f"{stage}/{cause} (seed {sheet.seed})" for stage, cause in sheet.missed()]
        row["wrong_cause"] += [
            f"{stage}/{cause} called {sheet.causes(stage)[0]} (seed {sheet.seed})"
            for stage, cause in sheet.wrong_cause()
        ]
        row["missed_clusters"] += [f"{name} (seed {sheet.seed})" for name in sheet.missed_clusters()]
        row["false"] += [f"{f.stage}/{f.cause} (seed {sheet.seed})" for f in sheet.false()]
    return out


def _rate(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 1.0
