-- What model servers said of their own requests (vLLM's spans), and whether each lies below a span of ours in the same trace.
SELECT
    toString(e.ServiceName) AS service,
    count() AS requests,
    countIf(p.SpanId != '') AS joined,
    arrayStringConcat(arraySort(groupUniqArray(toString(p.SpanName))), ', ') AS stages,
    quantileExact(0.5)(toFloat64OrZero(e.SpanAttributes['gen_ai.latency.time_to_first_token'])) * 1e3 AS ttft_ms,
    quantileExact(0.5)(toFloat64OrZero(e.SpanAttributes['gen_ai.latency.time_in_queue'])) * 1e3 AS queue_ms,
    quantileExact(0.5)(toFloat64OrZero(e.SpanAttributes['gen_ai.latency.time_in_model_prefill'])) * 1e3 AS prefill_ms,
    quantileExact(0.5)(toFloat64OrZero(e.SpanAttributes['gen_ai.latency.time_in_model_decode'])) * 1e3 AS decode_ms
FROM (SELECT * FROM otel_traces WHERE SpanName = 'llm_request' AND Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}) AS e
LEFT JOIN (SELECT TraceId, SpanId, SpanName FROM otel_traces WHERE Timestamp >= {start:DateTime64(3)} - INTERVAL 1 HOUR AND Timestamp < {end:DateTime64(3)}) AS p
    ON e.TraceId = p.TraceId AND e.ParentSpanId = p.SpanId
GROUP BY service
ORDER BY service
