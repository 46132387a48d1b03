"""Purpose budgets and needs, read from `stages.toml`. They depend on hardware and are settings, not knowledge."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from ingest.errors import BadSetting


@dataclass(frozen=True, slots=True)
class Needs:
    """Purpose budgets (ms a run by kind) and what a purpose needs, from `stages.toml`."""

    budget_ms: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: float = 264.0
    prompt_tokens_per_item: float = 40.0
    payload_bytes: float = 500_000.0


def needs(path: str = "") -> Needs:
    """Budgets and needs from a `stages.toml` (empty: the one in the package). Raises BadSetting."""
    try:
        text = Path(path).read_text() if path else (resources.files("ingest") / "stages.toml").read_text()
        body = tomllib.loads(text)
        need = body.get("need", {})
        plain = Needs()
        return Needs(
            {str(kind): float(ms) for kind, ms in body.get("budget", {}).items()},
            float(need.get("prompt_tokens", plain.prompt_tokens)),
            float(need.get("prompt_tokens_per_item", plain.prompt_tokens_per_item)),
            float(need.get("payload_bytes", plain.payload_bytes)),
        )
    except (OSError, tomllib.TOMLDecodeError, TypeError, ValueError) as err:
        raise BadSetting(
            "STAGESCOPE_STAGES", path, f"a readable stages.toml with numbers in [budget], [need] ({err})"
        ) from None
