"""The known failure scenes: how to recognise one, what to change, how to verify it. Everything else is `new`.

Must stay true: a scene is named from what was said and measured, never from which cluster came first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NEW = "new"


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of failure. `fix` and `verify` are what a ticket says; `domain` is where the fault-domain walk starts."""

    name: str
    title: str
    words: re.Pattern[str]
    cause: str
    domain: str
    metric: str
    fix: str
    verify: str
    effort: str


def _words(text: str) -> re.Pattern[str]:
    return re.compile(text, re.I | re.X)


SCENES: tuple[Scene, ...] = (
    Scene(
        "state_deadlock",
        "state-machine deadlock",
        _words(
            r"""state[\s_]?conflict | dead[\s-]?lock | optimistic[\s_]lock | (state|session|version)[\s_-]\w*\s?(conflict|mismatch)
            | (lock|mutex)[\s\w'"<*>:-]{0,40}(time[d]?[\s-]?out|not\sacquired|held|exceeded) | (acquire|waiting\sfor|wait\son)[\s\w'"-]{0,40}lock
            | concurrent\s(write|update|modif) | stuck\sin\sstate | LockTimeout | could\snot\sserialize\saccess"""
        ),
        "lock_wait",
        "state",
        "stage stuck for more than 3 s",
        "Give the session state a version and write it with an optimistic lock; bound every lock wait to 3 s and answer "
        "StateConflictError, which the caller may retry.",
        "Send 100 concurrent requests to one session: none waits over 3 s, every write wins or answers StateConflictError.",
        "medium",
    ),
    Scene(
        "kv_overflow",
        "KV-cache overflow",
        _words(
            r"""kv[\s_-]?cache | kv[\s_-](blocks?|usage|quota|overflow|memory) | cache_usage | (no|out\sof)\s(free\s|kv\s|cache\s)?blocks
            | preempt | (context|sequence|prompt|input)[\s\w]{0,30}(exceed\w*|too\slong|longer\sthan|over(flow)?)[\s\w']{0,40}
            (context|length|model|window|limit|max|tokens) | max(imum)?[\s_](model[\s_]len|context|sequence)"""
        ),
        "kv_cache_pressure",
        "cache",
        "KV cache usage above 0.92",
        "Cap the model length and truncate the history dynamically (free memory × 0.8 / bytes per token); give each worker a "
        "KV quota that refuses early instead of preempting.",
        "Hold a 10-turn dialogue under load: KV cache usage stays level below 0.92 and no request is preempted.",
        "free",
    ),
    Scene(
        "serialisation_crash",
        "serialisation crash",
        _words(
            r"""unicode | utf[\s_-]?(8|16) | surrogate | codec\scan | (null|nul)\s(byte|char) | embedded\snull | \\x00 | \\u0000
            | seriali[sz] | (en|de)cod(e|ing)[\s\w]{0,20}(error|fail) | (fail|could\snot|cannot|unable)[\s\w]{0,20}(en|de)code
            | JSONDecode | invalid\scontrol\scharacter | (invalid|illegal|malformed|unterminated)[\s\w]{0,20}
            (json|string|character|escape|byte|payload) | Expecting\s(value|property)"""
        ),
        "payload",
        "serialisation",
        "encode errors above 5 a minute",
        "Clean text at the edge: NFC, drop control characters and lone surrogates, refuse illegal UTF-8 with a clear 400; "
        "carry a schema version in every response.",
        "Send U+0000, a lone surrogate and illegal UTF-8: each is cleaned or refused at the gateway, no stage behind it fails.",
        "free",
    ),
    Scene(
        "degraded_mode",
        "service in degraded mode",
        _words(r"degraded | fallback[\s_](to|in|mode|model|level) | falling\sback | basic_mode"),
        "fallback_path",
        "downstream",
        "share of requests served by a fallback",
        "Keep the fallback model resident and warm with the same tokenizer, so that degraded is not also slow; then mend what "
        "sends requests there.",
        "Take the primary away for a minute: requests are answered from the fallback without an error, and return after it.",
        "medium",
    ),
    Scene(
        "tool_timeout",
        "tool-call timeout",
        _words(
            r"""time[d]?[\s_-]?out | deadline[\s_]?exceeded | (execution|call|request|response)[\s\w]{0,20}exceeded[\s<*>\d.,]*(s|ms|sec)?
            | took\stoo\slong | breaker[\s\w]{0,12}open | circuit[\s\w]{0,12}open"""
        ),
        "slow_dependency",
        "downstream",
        "tool p95 above 8 s",
        "Give tools tiered timeouts (basic 2 s, risky 5 s) and open a breaker after 3 failures in a row; answer with what the "
        "other tools gave.",
        "Inject a delay into the tool: the breaker opens after 3 calls, the request is answered without it within the timeout.",
        "free",
    ),
    Scene(
        "resource_exhausted",
        "resource exhausted",
        _words(
            r"""resource[\s_]?(quota|exhausted) | quota[\s_](exhausted|exceeded) | out\sof\s(gpu\s)?memory | \boom\b | OutOfMemory
            | memory\sallocation\sfailed | failed\sto\sallocate | rate[\s-]?limit | too\smany\srequests | queue\s(is\s)?full
            | overloaded | no\s(capacity|worker)"""
        ),
        "gpu_contention",
        "capacity",
        "GPU memory above 95 %, or quota at its limit",
        "Bound what is admitted: a quota per worker and a GPU memory watermark at 75 % that sheds load with a structured error "
        "before the allocator fails.",
        "Step the load past the present limit: requests are refused early with Retry-After, no allocation fails.",
        "medium",
    ),
)
BY_NAME: Mapping[str, Scene] = {scene.name: scene for scene in SCENES}


def name(text: str, *, tool: bool = False, facts: Mapping[str, float] | None = None) -> str:
    """The scene of one failure text. `tool`: it happened in a tool call; `facts`: evidence by name (kv_usage 0..1, lock_wait_ms …)."""
    known = facts or {}
    for scene in SCENES:
        if not scene.words.search(text[:4096]):
            continue
        if scene.name == "tool_timeout" and not (tool or _about_tools(text)):
            continue
        if scene.name == "resource_exhausted" and known.get("kv_usage", 0.0) > 0.92:
            return "kv_overflow"
        return scene.name
    return _by_facts(known)


def _about_tools(text: str) -> bool:
    return re.search(r"\b(tool|api|upstream|external|plugin|function|http|connect|read|fetch)", text, re.I) is not None


def _by_facts(facts: Mapping[str, float]) -> str:
    """A text that says nothing, beside a measurement that does."""
    if facts.get("kv_usage", 0.0) > 0.92 and facts.get("preemptions", 0.0) > 0:
        return "kv_overflow"
    if facts.get("lock_wait_ms", 0.0) > 3000:
        return "state_deadlock"
    return NEW
