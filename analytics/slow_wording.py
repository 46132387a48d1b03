"""What to say about each cause: headline, change to make, effort, and how to verify it. One entry a cause; numbers come from evidence.

Must stay true: every cause of the contract has an entry, and each recommendation is something a person can do on Monday.
"""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """`headline`, `change` and `check` may use {stage} {lost} {expected} {waiting} {where} {items} {need_tokens} {alert_kb};
    `effort` is free, medium or costly."""

    headline: str
    change: str
    effort: str
    check: str


WORDS: dict[str, Words] = {
    "prompt_bloat": Words(
        "{stage} reads a prompt it does not need: {lost} a request go into text that is the same on every call",
        "Take the fixed text out of the prompt: embed the {items} candidates once and look up the nearest few (or send only their "
        "names), and turn on prefix caching for what must stay. Keep the old prompt behind a switch until quality is confirmed.",
        "medium",
        "same traffic: median uncached prompt tokens of the stage at or below {need_tokens}, same share of right choices",
    ),
    "oversized_model": Words(
        "{stage} asks a core-tier model for a short answer: {lost} a request more than the edge tier would take",
        "Route this stage to the edge tier (a 1-4B model with structured output) and keep the core model for final generation. "
        "Compare answers on a sample of 500 requests before switching; fall back to the middle tier where they differ.",
        "medium",
        "agreement with the old answers on the sample, and the stage's p50 below {expected}",
    ),
    "redundant_step": Words(
        "{stage} hardly ever changes the outcome, and costs {lost} a request",
        "Run this step only where it can matter: gate it on a confidence score or on the failed checks before it, or sample it at 5 %. "
        "Remove it from the default path behind a feature switch.",
        "free",
        "share of changed outcomes among the requests that still run it rises above 30 %, answer quality unchanged",
    ),
    "retry": Words(
        "{stage} is run again and again: retries cost {lost} a request",
        "Retry once, only on errors that can pass, with jitter and a time budget for the whole request; put a breaker in front of the "
        "dependency that fails (open after three) and mend its most frequent error first.",
        "free",
        "mean retries of the stage below 0.05, error rate not higher",
    ),
    "queueing": Words(
        "{stage} waits for its turn: {lost} a request in a queue",
        "Give the pool room where the queue forms: raise its concurrency limit if the device has head-room, else add a replica; bound the "
        "queue and shed or defer what cannot be served in time. Scale on queue depth, not on utilisation.",
        "medium",
        "mean time in queue below {waiting} at the same arrival rate",
    ),
    "batch_stall": Words(
        "{stage} waits for its batch mates: {lost} a request",
        "Replace the static batch by continuous batching, or cap the time a batch waits to fill at 10 ms and group requests of like length.",
        "free",
        "p95 of batch wait below 10 ms, throughput not lower",
    ),
    "cpu_blocking": Words(
        "{stage} blocks on the CPU: {lost} a request while the device idles",
        "Move the work off the request's thread: run the embedding or tokenizer on the GPU or in a worker pool, batch it, and do not call "
        "it synchronously from the event loop.",
        "medium",
        "CPU time a run below a tenth of the stage's own time, device activity up",
    ),
    "payload": Words(
        "{stage} moves payloads that are too big: {lost} a request for encoding and transfer",
        "Hand over a reference (an id or an anchor into shared storage) instead of the document, drop fields that nobody reads, and use a "
        "binary encoding between services. Alert above {alert_kb} kB.",
        "medium",
        "median payload below 100 kB, and the stage's time at the level of small payloads",
    ),
    "fallback_path": Words(
        "{stage} runs on its fallback path, which is {lost} a request slower",
        "Find out why the first choice was given up (health checks, breaker, missing model), return to it automatically, and keep the "
        "fallback model resident and warm with the same tokenizer.",
        "medium",
        "share of fallback runs below 1 %, and their p50 within 20 % of the normal path",
    ),
    "cold_start": Words(
        "{stage} serves requests before it is warm: {lost} a request in the first minutes after a start",
        "Warm up before taking traffic: load weights, compile and run a few requests in the readiness probe, then ramp a new replica from "
        "10 % by 20 % every 30 s. Keep one spare replica warm.",
        "free",
        "p95 of the first two minutes after a start within 20 % of the usual p95",
    ),
    "kv_cache_pressure": Words(
        "{stage} runs out of KV cache: {lost} a request in preemption and recomputation",
        "Cap context length to what the free memory allows (free x 0.8 / bytes a token), truncate history, turn on paging and prefix "
        "caching, and refuse at the door when usage passes 0.92 instead of preempting.",
        "medium",
        "KV usage p99 below 0.9 and no preemptions over the same traffic",
    ),
    "gpu_contention": Words(
        "{stage} shares its GPU with something else: {lost} a request while SM activity is above 90 %",
        "Give the device to this stage alone (MIG slice, separate pool, or move the neighbour's job to off-peak hours).",
        "medium",
        "SM activity below 75 % at the same rate, p95 back at {expected}",
    ),
    "pcie_saturation": Words(
        "{stage} waits for the PCIe bus: {lost} a request",
        "Stop moving weights or tensors per request: keep the model resident, pin host memory, batch the copies, and check that no other "
        "job loads models over the same link.",
        "medium",
        "PCIe use below 60 % of the link at the same rate",
    ),
    "storage_wait": Words(
        "{stage} waits for the disk: {lost} a request while the disk queue is above 10",
        "Move the hot files (weights, index, cache) to local NVMe or memory, or buy IOPS; keep batch jobs off this volume at peak.",
        "medium",
        "disk queue below 2 and I/O below 80 % of what is provisioned",
    ),
    "network_hop": Words(
        "The way to {stage} is slow: {lost} a request between caller and callee",
        "Keep caller and callee in one zone, reuse connections (keep-alive, pooled), cache DNS, and cut round trips by batching calls.",
        "medium",
        "p95 of the gap below {expected}, cross-zone round trip below 15 ms",
    ),
    "slow_dependency": Words(
        "{stage} waits for a slow dependency: {lost} a request {where}",
        "Set a tiered timeout (2 s for a basic tool, 5 s for a risky one) with a breaker, cache answers that do not change, and take the "
        "trace ids below to the owner of the dependency.",
        "medium",
        "p95 of the stage back at its level before, under {expected}",
    ),
    "lock_wait": Words(
        "{stage} waits for a lock: {lost} a request",
        "Shorten what is done while the lock is held, split the hot row or key, use an optimistic version check, and time out after 3 s "
        "with StateConflictError.",
        "medium",
        "p95 of lock wait below 5 ms under 100 concurrent requests to one session",
    ),
    "context_init": Words(
        "{stage} builds a device context for each request: {lost} a request",
        "Create the context once per worker and keep it: a persistent process per device, no subprocess per call.",
        "free",
        "context initialisation only at start; none in traces",
    ),
    "dimension_specific": Words(
        "{stage} is slow only for {where}: {lost} a request there",
        "Compare one slow and one quick trace of the same work side by side; look for what only {where} has: route, replica, client "
        "version, quota. Shift its traffic away until it is mended.",
        "medium",
        "p95 for {where} within 10 % of the others",
    ),
    "regression": Words(
        "{stage} became slower with {where}: {lost} a request",
        "Roll {where} back (or stop the roll-out), then bisect its changes with the traces below; keep it behind a canary that compares "
        "this stage's p95 for the same work.",
        "free",
        "`stagescope compare` of the two versions on this stage: no difference",
    ),
    "unknown": Words(
        "{stage} takes {lost} a request more than its work explains, and nothing that was recorded tells why",
        "Record more inside this stage (time in queue, CPU time, retries, host and device), profile the slowest of the traces below, and "
        "compare them with quick ones of the same work.",
        "medium",
        "after instrumenting, the unexplained part has a name, or p50 is at {expected}",
    ),
}
