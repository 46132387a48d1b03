-- The runs of one trace by start; a gap begins with its client span and comes after it.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS start_ns, SpanId AS span_id, ParentSpanId AS parent_span_id, toString(Stage) AS stage,
    toString(Kind) AS kind, toString(ServiceName) AS service, Duration / 1e6 AS duration_ms, SelfTime / 1e6 AS self_ms,
    CriticalTime / 1e6 AS critical_ms, WaitTime / 1e6 AS wait_ms, Failed AS failed, toString(ErrorType) AS error_type,
    ErrorMessage AS error_message, toString(Tier) AS tier, toString(Model) AS model, toString(Tool) AS tool, toString(Host) AS host,
    InputTokens AS input_tokens, CachedTokens AS cached_tokens, OutputTokens AS output_tokens, Retries AS retries,
    toString(Marks) AS marks, toJSONString(Evidence) AS evidence
FROM stage_runs FINAL
WHERE TraceId = {trace:String}
ORDER BY Timestamp, kind = 'gap', SpanId
LIMIT {limit:UInt32}
