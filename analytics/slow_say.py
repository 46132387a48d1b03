"""Fills the words of a cause with the numbers of one stage, and writes the query that shows the same runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analytics.expectation_needs import Needs
from analytics.findings import Window
from analytics.slow_evidence import in_order_ms
from analytics.slow_residual import QUEUE_SHARE, WAIT_FLOOR_MS, Loss
from analytics.slow_stage import Stage
from analytics.slow_wording import WORDS


class Said(NamedTuple):
    title: str
    recommendation: str
    effort: str
    verify: str


def say(loss: Loss, cause: str, saving_ms: float, where: str, need: Needs) -> Said:
    """Title, recommendation, effort and criterion of one finding."""
    stage, words = loss.stage, WORDS[cause]
    items = float(np.median(stage.work[:, 5]))
    expected = in_order_ms(loss, cause)
    fields = {
        "stage": stage.name,
        "lost": duration(saving_ms),
        "expected": duration(expected),
        "waiting": duration(max(WAIT_FLOOR_MS, QUEUE_SHARE * expected)),
        "where": where.replace("=", " ")
        if where
        else ("while it lasted" if cause == "slow_dependency" else "some requests"),
        "items": f"{items:.0f}" if items > 0 else "",
        "need_tokens": f"{need.prompt_tokens + need.prompt_tokens_per_item * items:.0f}",
        "alert_kb": f"{need.payload_bytes / 1e3:.0f}",
    }
    check = words.check.format(**fields)
    verify = f"stagescope findings --kind slow: this finding is gone after the change; {check}"
    return Said(
        _tidy(words.headline.format(**fields)), _tidy(words.change.format(**fields)), words.effort, _tidy(verify)
    )


def duration(ms: float) -> str:
    """A length of time as people say it."""
    return f"{ms / 1e3:.1f} s" if ms >= 1_000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def query_of(stage: Stage, window: Window) -> str:
    """SQL a person can paste: the stage's runs in the window, slowest first."""
    return (
        "SELECT Timestamp, TraceId, SelfTime / 1e6 AS own_ms, WaitTime / 1e6 AS wait_ms, InputTokens, CachedTokens, OutputTokens, "
        "Items, Retries, Region, Device, UserTier, Version, Host, Evidence FROM stage_runs FINAL "
        f"WHERE ServiceName = {_quoted(stage.service)} AND Stage = {_quoted(stage.name)} AND Failed = 0 "
        f"AND Timestamp >= '{window.start:%Y-%m-%d %H:%M:%S}' AND Timestamp < '{window.end:%Y-%m-%d %H:%M:%S}' "
        "ORDER BY SelfTime DESC LIMIT 100"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _tidy(text: str) -> str:
    return " ".join(text.replace("the  candidates", "the candidates").split())
