-- What the /metrics pages of engines said over a window.
SELECT
    toString(Instance) AS instance,
    toString(Model) AS model,
    count() AS readings,
    max(Running) AS running,
    max(Waiting) AS waiting,
    max(KvUsage) AS kv_usage,
    max(PromptTokens) AS prompt_tokens,
    max(GenerationTokens) AS generation_tokens,
    max(PrefixHits) / nullIf(max(PrefixQueries), 0) AS prefix_hit_share,
    max(Preemptions) AS preemptions
FROM engine_samples FINAL
WHERE Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}
GROUP BY instance, model
ORDER BY instance
