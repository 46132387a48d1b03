"""A small world of stage runs on virtual time, for tests of the slow analyzer: healthy stages, decoys, and faults put in by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from analytics.expectation_needs import needs
from analytics.findings import Window
from analytics.slow_load import EVIDENCE, Data

START = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A stage: ms a call, a prompt token, an output token, a kB; medians of its work; log spread of its noise."""

    service: str
    name: str
    kind: str
    tier: str = ""
    model: str = ""
    tool: str = ""
    base: float = 20.0
    prompt_ms: float = 0.0
    output_ms: float = 0.0
    kb_ms: float = 0.0
    tokens: float = 0.0
    output: float = 0.0
    kilobytes: float = 0.0
    items: float = 0.0
    noise: float = 0.12
    wait: float = 0.0


EDGE = {"tier": "edge", "model": "Tiny-1.1B", "prompt_ms": 0.17, "output_ms": 9.0, "base": 8.0}
MIDDLE = {"tier": "middle", "model": "Mid-3.8B", "prompt_ms": 0.13, "output_ms": 16.0, "base": 12.0}
CORE = {"tier": "core", "model": "Big-70B", "prompt_ms": 0.45, "output_ms": 20.0, "base": 20.0}
STAGES: tuple[Kind, ...] = (
    Kind("edge", "intent", "parse", tokens=210, output=8, **EDGE),
    Kind("edge", "route", "decide", tokens=320, output=12, items=6, **EDGE),
    Kind("edge", "tone", "check", tokens=320, output=5, **EDGE),
    Kind("middle", "outline", "generate", tokens=500, output=45, **MIDDLE),
    Kind("middle", "merge", "aggregate", tokens=800, output=28, **MIDDLE),
    Kind("middle", "verify", "check", tokens=530, output=6, **MIDDLE),
    Kind("core", "answer", "generate", tokens=1500, output=110, **CORE),
    Kind("tools", "lookup", "fetch", tool="search", base=180, kb_ms=1.5, kilobytes=24, noise=0.3),
    Kind("tools", "sandbox", "fetch", tool="run_code", base=900, noise=0.4),
    Kind("orchestrator", "approve", "other", base=5, wait=4_000.0),
    Kind("gap", "gap: a → b", "gap", base=3, kb_ms=0.02, kilobytes=10, noise=0.3),
    Kind("gap", "gap: a → c", "gap", base=3, kb_ms=0.02, kilobytes=8, noise=0.3),
    Kind("gap", "gap: b → d", "gap", base=4, kb_ms=0.02, kilobytes=12, noise=0.3),
)


@dataclass
class World:
    """All runs of `traces` requests over `minutes`; change `runs` before `data()` to put a fault in."""

    seed: int = 1
    traces: int = 1_500
    minutes: float = 120.0
    stages: Sequence[Kind] = STAGES
    runs: pd.DataFrame = field(init=False)
    gpu: pd.DataFrame = field(default_factory=pd.DataFrame)
    host: pd.DataFrame = field(default_factory=pd.DataFrame)
    engine: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        rng, n = self.rng, self.traces
        self.starts = np.sort(rng.uniform(0, self.minutes * 60, n)) + START.timestamp()
        self.dims = pd.DataFrame(
            {
                "region": rng.choice(["eu", "us", "ap"], n, p=[0.45, 0.35, 0.2]),
                "device": rng.choice(["ios", "android", "web"], n),
                "user_tier": rng.choice(["free", "pro"], n, p=[0.7, 0.3]),
                "user": rng.integers(0, 400, n).astype(str),
                "version": np.full(n, "1.0.0"),
                "trace": [f"{self.seed:04x}{i:028x}" for i in range(n)],
            }
        )
        self.runs = pd.concat([self._runs(kind, i) for i, kind in enumerate(self.stages)], ignore_index=True)

    def _runs(self, kind: Kind, number: int) -> pd.DataFrame:
        rng, n = self.rng, self.traces
        tokens = np.round(kind.tokens * np.exp(rng.normal(0, 0.3, n))) if kind.tokens else np.full(n, np.nan)
        output = (
            np.maximum(1, np.round(kind.output * np.exp(rng.normal(0, 0.4, n)))) if kind.output else np.full(n, np.nan)
        )
        size = kind.kilobytes * np.exp(rng.normal(0, 0.5, n)) if kind.kilobytes else np.full(n, np.nan)
        hosts = rng.integers(1, 4, n)
        pace = np.exp(rng.normal(0, 0.03, 4))[hosts]
        work = kind.base + kind.prompt_ms * np.nan_to_num(tokens) + kind.output_ms * np.nan_to_num(output)
        work = work + kind.kb_ms * np.nan_to_num(size)
        wait = kind.wait * np.exp(rng.normal(0, 0.5, n)) if kind.wait else np.zeros(n)
        frame = self.dims.assign(
            ts=self.starts + 0.4 * number,
            service=kind.service,
            stage=kind.name,
            kind=kind.kind,
            tier=kind.tier,
            model=kind.model,
            tool=kind.tool,
            host=[f"{kind.service}-{h}" for h in hosts],
            service_ms=work * pace * np.exp(rng.normal(0, kind.noise, n)),
            wait_ms=wait,
            input_tokens=tokens,
            cached_tokens=np.nan,
            output_tokens=output,
            payload_bytes=size * 1e3,
            items=kind.items or np.nan,
            row_count=np.nan,
            retries=0.0,
            failed=0,
        )
        return frame.assign(extra_ms=0.0, **{f"ev_{name}": np.nan for name in EVIDENCE})

    def of(self, stage: str) -> pd.Series[bool]:
        return self.runs["stage"] == stage

    def between(self, first: float, last: float) -> pd.Series[bool]:
        """Runs that start between two shares (0..1) of the window."""
        share = (self.runs["ts"] - START.timestamp()) / (self.minutes * 60)
        return (share >= first) & (share < last)

    def slow(self, mask: pd.Series[bool], times: float) -> None:
        self.runs.loc[mask, "service_ms"] *= times

    def measured(self, mask: pd.Series[bool], fact: str, mean_ms: float) -> None:
        """A wait that the stage itself measured, exponential, on top of its service time."""
        spent = self.rng.exponential(mean_ms, int(mask.sum()))
        self.runs.loc[mask, fact] = spent
        self.runs.loc[mask, "extra_ms"] += spent

    def data(self, window: Window | None = None) -> Data:
        runs = self.runs.copy()
        runs["self_ms"] = runs["service_ms"] * (1 + runs["retries"]) + runs["wait_ms"] + runs["extra_ms"]
        runs["duration_ms"] = runs["critical_ms"] = runs["self_ms"]
        runs["trace_ms"] = runs.groupby("trace")["self_ms"].transform("sum")
        runs = runs.drop(columns=["service_ms", "extra_ms"])
        totals = runs.groupby(["service", "stage"], as_index=False).agg(
            runs=("ts", "size"), failed=("failed", "sum"), critical_ms=("critical_ms", "sum")
        )
        totals = totals.sort_values("critical_ms", ascending=False, ignore_index=True)
        minute = (runs["ts"] // 60 * 60).astype(int)
        load = (
            runs.assign(minute=minute)
            .groupby(["service", "stage", "minute"], as_index=False)
            .agg(starts=("ts", "size"))
        )
        window = window or Window(START, START + timedelta(minutes=self.minutes))
        traces = int(runs["trace"].nunique())
        return Data(window, runs, totals, traces, load, self.gpu, self.host, self.engine, needs(), len(runs))
