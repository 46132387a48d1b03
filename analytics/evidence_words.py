"""What was measured, in words with units, as a person reads it. One set of words for terminal, pages, tickets and roadmap.

Must stay true: every name an analyzer gives an evidence reads as words; none is shown raw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from analytics.findings import Evidence

_STATISTICS = {"p50": "median", "p95": "p95 of", "p99": "p99 of", "max": "highest"}
_WORDS: Mapping[str, str] = {
    "own_time_p50_ms": "median own time of a run",
    "own_time_p95_ms": "p95 of own time of a run",
    "output_tokens_p50": "median answer",
    "affected_share_of_runs": "share of runs affected",
    "lost_ms_per_affected_run": "time lost in an affected run",
    "ms_per_prompt_token": "time a prompt token",
    "repeated_share_of_prompt": "share of the prompt that is the same on every call",
    "repeated_prompt_tokens_p50": "median prompt text that is the same on every call",
    "uncached_prompt_tokens_p50": "median prompt not served from the cache",
    "items_to_choose_from": "items to choose from",
    "times_its_peers": "time for the same work, against its peers",
    "longest_stretch_s": "longest stretch",
    "share_of_window_in_danger": "share of the time in danger",
    "outcome_changed_share": "share of runs whose outcome it changed",
    "expectation_from": "what is in order comes from",
    "curve_points_to": "the curve points to",
    "cpu_ms_p50": "median CPU time of a run",
    "queue_ms_p50": "median time in queue",
    "queue_ms_p95": "p95 of time in queue",
    "batch_wait_ms_p50": "median wait for batch mates",
    "batch_wait_ms_p95": "p95 of wait for batch mates",
    "lock_wait_ms_p50": "median wait for the lock",
    "lock_wait_ms_p95": "p95 of wait for the lock",
    "context_init_ms_p50": "median time to build a device context",
    "context_init_ms_p95": "p95 of time to build a device context",
    "serialise_ms_p50": "median time to encode and decode",
    "serialise_ms_p95": "p95 of time to encode and decode",
    "payload_kb_p50": "median payload",
    "retries_per_run": "mean retries a run",
    "runs_with_retries": "share of runs with retries",
}
# What a contrast is made of: the name of the feature, and how it reads.
_FEATURES: Mapping[str, str] = {
    "fallback": "on the fallback path",
    "degraded": "in degraded mode",
    "cold_start": "in a cold start",
    "uptime_s": "in the first two minutes after a start",
    "kv_usage": "while the KV cache is full",
    "engine_kv": "while the engine's KV cache is full",
    "preemptions": "with each preemption",
    "sm": "while SM activity is high",
    "pcie": "while the PCIe link is busy",
    "disk_queue": "while the disk queue is long",
    "net_rtt": "while the round trip is long",
    "lock_holders": "behind holders of the lock",
    "cpu": "while the host's CPU is full",
    "waiting": "while requests wait in the engine",
    "starts_per_minute": "with twice the load or more",
    "time": "in one stretch of time",
}
_MEASURES: Mapping[str, str] = {
    "fallback": "level of fallback",
    "sm": "SM activity",
    "pcie": "use of the PCIe link",
    "kv_usage": "KV cache in use",
    "engine_kv": "KV cache in use",
    "disk_queue": "requests in the disk queue",
    "net_rtt": "round trip",
    "cpu": "CPU of the host in use",
    "uptime_s": "age of the process",
    "waiting": "requests waiting in the engine",
    "gpu_mem": "GPU memory in use",
}
_CONTRASTS: Mapping[str, str] = {
    "slower_when": "slower {}, for the same work",
    "share_of_runs": "share of runs {}",
    "standard_errors": "standard errors away from no difference, {}",
}


def fact(item: Evidence) -> str:
    """One measured value in plain words: `median retries: 2 (in order: 0)`."""
    name, unit = plain(item.name), item.unit
    if unit and name.endswith(f" {unit}"):
        unit = ""
    text = f"{name}: {measure(item.value, unit)}"
    if item.expected is None:
        return text
    number = not isinstance(item.expected, str)
    return f"{text} ({'in order' if number else 'usually'}: {measure(item.expected, unit if number else '')})"


def plain(name: str) -> str:
    """The name of an evidence as a person says it: `own_time_p50_ms` is `median own time`, the unit stands behind the value."""
    if name in _WORDS:
        return _WORDS[name]
    head, _, feature = name.partition(" ")
    if head in _CONTRASTS and feature:
        return _CONTRASTS[head].format(_FEATURES.get(feature, f"with {feature.replace('_', ' ').replace('=', ' ')}"))
    stem, above, _ = name.rpartition("_above")
    if above and stem in _MEASURES:
        return f"{_MEASURES[stem]} called high above"
    words = re.sub(r"_(ms|s|kb)(?=_|$)", "", name).split("_")
    front = [_STATISTICS[word] for word in words if word in _STATISTICS]
    rest = "_".join(word for word in words if word not in _STATISTICS)
    return " ".join([*front, _MEASURES.get(rest, rest.replace("_", " "))])


def measure(value: float | str, unit: str) -> str:
    """A value with its unit; a ratio is a percentage."""
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    if unit in ("ratio", "share"):
        return f"{100 * value:.3g} %"
    if unit == "x":
        return f"{value:.3g} times"
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f} {unit}".strip()
    return f"{value:.3g} {unit}".strip()
