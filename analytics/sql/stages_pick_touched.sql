-- The traces that got spans in blocks (after, upto] of stage_touched, with all they ever had.
INSERT INTO $pick
SELECT TraceId, Start, End, Spans, Long, intDiv(sum(Spans) OVER (PARTITION BY Long ORDER BY Start, TraceId ROWS UNBOUNDED PRECEDING), {chunk:UInt64})
FROM
(
    SELECT TraceId, min(Low) AS Start, max(High) AS End, greatest(sum(Count), 1) AS Spans,
        toUnixTimestamp64Nano(End) - toUnixTimestamp64Nano(Start) > {long_ns:Int64} AS Long
    FROM
    (
        SELECT TraceId, Start AS Low, End AS High, toUInt64(Spans) AS Count FROM stage_touched
        WHERE TraceId IN (SELECT TraceId FROM stage_touched WHERE _block_number > {after:Int64} AND _block_number <= {upto:Int64})
        UNION ALL
        SELECT TraceId, toDateTime64(Start, 9), toDateTime64(End, 9) + INTERVAL 1 SECOND, toUInt64(0) FROM otel_traces_trace_id_ts
        WHERE TraceId IN (SELECT TraceId FROM stage_touched WHERE _block_number > {after:Int64} AND _block_number <= {upto:Int64})
    )
    GROUP BY TraceId
)
