"""Which faults act on what, when. A fault changes conditions (queues, clocks, sizes, neighbours); its name never reaches a span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from instrumented_stack.scenario import Fault

NOTHING: tuple[Fault, ...] = ()


class FaultBook:
    """The faults of a scenario by stage."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.all = tuple(faults)
        self._by_stage: dict[str, tuple[Fault, ...]] = {}
        self._everywhere = tuple(item for item in faults if item.stage == "*")
        for stage in {item.stage for item in faults} - {"*"}:
            self._by_stage[stage] = tuple(item for item in faults if item.stage in (stage, "*"))

    def active(self, stage: str, facts: Mapping[str, str], now_s: float) -> tuple[Fault, ...]:
        """Faults that act on this stage for a request with these facts (region, device, host, tool …) at this second."""
        candidates = self._by_stage.get(stage, self._everywhere)
        if not candidates:
            return NOTHING
        return tuple(item for item in candidates if item.start_s <= now_s < item.end_s and matches(item, facts))

    def concerns(self, stage: str) -> bool:
        """Whether any fault ever acts on this stage; asked first, because facts cost time to gather."""
        return bool(self._everywhere) or stage in self._by_stage

    def on_host(self, stage: str, host: str, start_s: float, end_s: float) -> list[tuple[Fault, float]]:
        """Faults of this stage that touch a host between two seconds, each with the share of that time it acts."""
        out = []
        for item in self._by_stage.get(stage, self._everywhere):
            overlap = min(end_s, item.end_s) - max(start_s, item.start_s)
            if overlap > 0 and host in item.where.get("host", (host,)):
                out.append((item, overlap / (end_s - start_s)))
        return out


def matches(fault: Fault, facts: Mapping[str, str]) -> bool:
    """All dimensions of `where` agree (a list of values means any of them)."""
    return all(facts.get(key) in values for key, values in fault.where.items())
