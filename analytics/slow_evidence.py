"""The facts behind a slow finding, each with its unit and the value that would be in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from analytics.expectation_needs import Needs
from analytics.findings import Evidence
from analytics.slow_residual import Loss, cause_of
from analytics.slow_select import Effect
from analytics.slow_stage import Array, Stage
from analytics.slow_waste import bloat_tokens, changed_share

WASTED = frozenset({"prompt_bloat", "oversized_model", "redundant_step"})
SOURCES: Mapping[str, str] = {
    "peers": "other stages on the same model",
    "roofline": "roofline of its model and card, scaled to what other models reach here",
    "tier": "typical rates of its tier, scaled to what is seen here",
    "budget": "what its purpose may cost (stages.toml)",
    "self": "its own quick runs",
}


def evidence(loss: Loss, cause: str, need: Needs) -> tuple[Evidence, ...]:
    """Facts for one cause, the most telling first."""
    rows = [*_SPECIAL.get(cause, _nothing)(loss, need), *_effect_rows(loss, cause), *_common(loss, cause)]
    seen: set[str] = set()
    return tuple(row for row in rows if not (row.name in seen or seen.add(row.name)))  # type: ignore[func-returns-value]


def effect_for(loss: Loss, cause: str) -> Effect | None:
    """The strongest chosen effect behind a cause."""
    own = [effect for effect in loss.effects if cause_of(loss.stage, effect.feature, loss.expected) == cause]
    return max(own, key=lambda effect: effect.z, default=None)


def in_order_ms(loss: Loss, cause: str) -> float:
    """Median own time that would be in order: what the work justifies, or for wasted work what is left without the waste."""
    if cause in WASTED:
        return float(np.median(np.maximum(loss.stage.service_ms - loss.of(cause), 0.0)))
    return float(np.median(loss.expected.healthy_mean_ms))


def _common(loss: Loss, cause: str) -> list[Evidence]:
    stage, expected = loss.stage, loss.expected
    hit = loss.of(cause) > 0
    rows = [
        Evidence("own_time_p50_ms", _ms(np.median(stage.service_ms)), "ms", _ms(in_order_ms(loss, cause))),
        Evidence("own_time_p95_ms", _ms(np.quantile(stage.service_ms, 0.95)), "ms"),
        Evidence("lost_ms_per_affected_run", _ms(loss.of(cause)[hit].mean() if hit.any() else 0.0), "ms"),
        Evidence("affected_share_of_runs", round(float(hit.mean()), 4), "ratio"),
        Evidence("expectation_from", SOURCES[expected.source]),
    ]
    if stage.model and stage.known_share > 0:
        rows.insert(1, Evidence("uncached_prompt_tokens_p50", float(np.median(stage.work[:, 1])), "tokens"))
        rows.insert(2, Evidence("output_tokens_p50", float(np.median(stage.work[:, 2])), "tokens"))
    if expected.source in ("peers", "roofline", "tier") and expected.bad:
        rows.insert(1, Evidence("times_its_peers", round(float(np.exp(expected.level - expected.centre)), 2), "x", 1.0))
    return rows


def _effect_rows(loss: Loss, cause: str) -> list[Evidence]:
    rows = []
    for effect in loss.effects:
        feature = effect.feature
        if cause_of(loss.stage, feature, loss.expected) != cause:
            continue
        on = feature.on
        slower = round(100.0 * (float(np.exp(effect.log_effect)) - 1.0), 1)
        rows.append(Evidence(f"slower_when {feature.name}", slower, "%", 0.0))
        if feature.group == "mechanism":
            rows.append(Evidence(f"{feature.name}_above", feature.threshold, feature.unit))
        rows.append(Evidence(f"share_of_runs {feature.name}", round(float(on.mean()), 4), "ratio"))
        rows.append(Evidence(f"standard_errors {feature.name}", round(effect.z, 1)))
    return rows


def _nothing(loss: Loss, need: Needs) -> list[Evidence]:
    return []


def _bloat(loss: Loss, need: Needs) -> list[Evidence]:
    stage = loss.stage
    items = stage.work[:, 5]
    allowed = need.prompt_tokens + need.prompt_tokens_per_item * float(np.median(items))
    extra = bloat_tokens(stage, need)
    said = stage.fact("ev_repeated_tokens")
    known = said[np.isfinite(said)]
    repeated = (
        float(np.median(known)) if len(known) else allowed + float(np.median(extra if extra is not None else 0.0))
    )
    rows = [Evidence("repeated_prompt_tokens_p50", round(repeated), "tokens", round(allowed))]
    total = float(np.median(stage.work[:, 1] + np.nan_to_num(stage.fact("cached_tokens"))))
    rows.append(Evidence("repeated_share_of_prompt", round(repeated / max(total, 1.0), 3), "ratio"))
    rows.append(Evidence("ms_per_prompt_token", round(loss.expected.rates[1], 4), "ms"))
    if items.any():
        rows.append(Evidence("items_to_choose_from", float(np.median(items)), "items"))
    return rows


def _oversized(loss: Loss, need: Needs) -> list[Evidence]:
    return [Evidence("model", loss.stage.model), Evidence("tier", loss.stage.tier or "unnamed", expected="edge")]


def _redundant(loss: Loss, need: Needs) -> list[Evidence]:
    share = changed_share(loss.stage)
    return [Evidence("outcome_changed_share", round(share if share is not None else 0.0, 4), "ratio", 0.1)]


def _retry(loss: Loss, need: Needs) -> list[Evidence]:
    retries = loss.stage.fact("retries")
    return [
        Evidence("retries_per_run", round(float(np.nanmean(retries)), 3), "retries", 0.0),
        Evidence("runs_with_retries", round(float((retries > 0).mean()), 4), "ratio", 0.0),
    ]


def _wait(column: str, ceiling: float) -> Callable[[Loss, Needs], list[Evidence]]:
    def rows(loss: Loss, need: Needs) -> list[Evidence]:
        spent = loss.stage.fact(column)
        spent = spent[np.isfinite(spent)]
        if not len(spent):
            return []
        name = column.removeprefix("ev_")
        return [
            Evidence(f"{name}_p50", _ms(np.median(spent)), "ms", ceiling),
            Evidence(f"{name}_p95", _ms(np.quantile(spent, 0.95)), "ms", ceiling),
        ]

    return rows


def _payload(loss: Loss, need: Needs) -> list[Evidence]:
    kilobytes = loss.stage.work[:, 3]
    rows = [Evidence("payload_kb_p50", round(float(np.median(kilobytes)), 1), "kB", 100.0)]
    return [*rows, *_wait("ev_serialise_ms", 15.0)(loss, need)]


def _cpu(loss: Loss, need: Needs) -> list[Evidence]:
    cpu = loss.stage.fact("ev_cpu_ms")
    if not np.isfinite(cpu).any():
        return []
    return [Evidence("cpu_ms_p50", _ms(np.nanmedian(cpu)), "ms", _ms(0.1 * float(np.median(loss.stage.service_ms))))]


def _ms(value: float | np.floating[object]) -> float:  # type: ignore[type-var]
    return round(float(value), 1)


def column_mean(stage: Stage, column: str, mask: Array) -> float:
    """Mean of a fact over some runs; NaN where none says."""
    values = stage.fact(column)[mask > 0]
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


_SPECIAL: Mapping[str, Callable[[Loss, Needs], list[Evidence]]] = {
    "prompt_bloat": _bloat,
    "oversized_model": _oversized,
    "redundant_step": _redundant,
    "retry": _retry,
    "queueing": _wait("ev_queue_ms", 15.0),
    "batch_stall": _wait("ev_batch_wait_ms", 10.0),
    "lock_wait": _wait("ev_lock_wait_ms", 5.0),
    "context_init": _wait("ev_context_init_ms", 0.0),
    "payload": _payload,
    "cpu_blocking": _cpu,
}
