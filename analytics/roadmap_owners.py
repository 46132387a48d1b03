"""Who mends what: the rules of owners.toml, first match wins.

Must stay true: an unknown key in a rule is an error, because a rule that matches too much sends work to the wrong people.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analytics.findings import Finding
from ingest.errors import BadSetting

SUBJECT = ("service", "stage", "tier", "model", "tool")
FIELDS = (*SUBJECT, "kind", "cause")


@dataclass(frozen=True, slots=True)
class Owners:
    """Rules in order: patterns by field, and the team that owns what they match."""

    rules: Sequence[tuple[Mapping[str, str], str]]

    def of(self, finding: Finding) -> str:
        """The team, or '' when no rule matches."""
        facts = {
            **{name: finding.subject.get(name, "") for name in SUBJECT},
            "kind": finding.kind,
            "cause": finding.cause,
        }
        for wanted, team in self.rules:
            if all(fnmatch.fnmatchcase(facts[name], pattern) for name, pattern in wanted.items()):
                return team
        return ""


NOBODY = Owners(())


def load(path: Path) -> Owners:
    """Read `[[owner]] team = "…"` with any of service, stage, tier, model, tool, kind, cause (`*` and `?` allowed). Raises BadSetting."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise BadSetting("STAGESCOPE_OWNERS", str(path), f"a readable file ({err.strerror})") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise BadSetting("STAGESCOPE_OWNERS", str(path), f"TOML ({err})") from err
    rules = []
    for number, rule in enumerate(document.get("owner", []), 1):
        unknown = sorted(set(rule) - {*FIELDS, "team"})
        if (
            unknown
            or not isinstance(rule.get("team"), str)
            or not all(isinstance(value, str) for value in rule.values())
        ):
            expected = f"team and any of {', '.join(FIELDS)} as text in [[owner]] number {number}"
            raise BadSetting("STAGESCOPE_OWNERS", unknown[0] if unknown else str(path), expected)
        rules.append(({name: value for name, value in rule.items() if name != "team"}, rule["team"]))
    return Owners(tuple(rules))
