"""How big one thing may be before it is cut or refused. Every limit is stated here, and documented in docs/otlp.md."""

from __future__ import annotations

from dataclasses import dataclass

LAST_NS = 4_102_444_800_000_000_000  # 2100-01-01: past it a clock or a unit is wrong, and DateTime64(9) ends in 2262


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one span, log record or metric point. Longer things are cut and marked `truncated`, never dropped."""

    attributes: int = 1024
    attribute_bytes: int = 1024 * 1024
    key_bytes: int = 2048
    name_bytes: int = 4096
    events: int = 1024
    links: int = 1024

    @property
    def careless_bytes(self) -> int:
        """Nothing of at most this many bytes can break any limit (an attribute, event or link takes at least 2)."""
        return min(2 * self.attributes, 2 * self.events, 2 * self.links, self.key_bytes, self.name_bytes)
