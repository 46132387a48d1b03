-- Traces that were stored before the table of touched traces was there (a Collector made and filled otel_traces first).
INSERT INTO stage_touched (TraceId, Start, End, Spans)
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End, toUInt32(count()) AS Spans
FROM otel_traces
WHERE TraceId != '' AND TraceId NOT IN (SELECT TraceId FROM stage_touched)
GROUP BY TraceId
SETTINGS max_bytes_before_external_group_by = 1000000000
