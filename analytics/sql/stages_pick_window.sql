-- The whole traces whose first span lies in [low, high), cut into slices of about `chunk` spans in the order of their start;
-- traces longer than long_ns make slices of their own. `open` also takes traces that began before low.
INSERT INTO $pick
SELECT TraceId, Start, End, Spans, Long, intDiv(sum(Spans) OVER (PARTITION BY Long ORDER BY Start, TraceId ROWS UNBOUNDED PRECEDING), {chunk:UInt64})
FROM
(
    SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End, count() AS Spans,
        toUnixTimestamp64Nano(End) - toUnixTimestamp64Nano(Start) > {long_ns:Int64} AS Long
    FROM otel_traces
    WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64} - {reach:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64} + {reach:Int64})
        AND TraceId IN
        (
            SELECT TraceId FROM otel_traces
            WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64}) AND TraceId != ''
        )
    GROUP BY TraceId
    HAVING {open:UInt8} OR Start >= fromUnixTimestamp64Nano({low:Int64})
)
SETTINGS use_skip_indexes = 0
