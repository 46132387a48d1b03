-- How one stage did over a window, and how often its choice was the one wanted for the task.
SELECT
    count() AS runs,
    quantileExact(0.5)(Duration / 1e6) AS p50_ms,
    quantileExact(0.95)(Duration / 1e6) AS p95_ms,
    quantileExact(0.5)(toInt64OrZero(SpanAttributes['gen_ai.usage.input_tokens'])) AS input_tokens,
    avg(SpanAttributes['agent.tool_choice'] = transform(SpanAttributes['agent.task'], {tasks:Array(String)}, {wanted:Array(String)}, '?')) AS right_share
FROM otel_traces
WHERE SpanAttributes['stagescope.stage'] = {stage:String} AND Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}
