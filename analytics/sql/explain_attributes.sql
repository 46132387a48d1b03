-- Counts by attribute and value of the same runs (one trace in `sample`); values seen fewer than `least` times are left out.
SELECT Pair.1 AS dimension, Pair.2 AS value, count() AS runs, countIf(hit) AS hits
FROM
(
    SELECT arrayDistinct(arrayConcat(CAST(SpanAttributes, 'Array(Tuple(String, String))'), CAST(ResourceAttributes, 'Array(Tuple(String, String))'))) AS Pairs, r.hit AS hit
    FROM otel_traces AS t
    ANY INNER JOIN
    (
        SELECT TraceId, SpanId, $hit AS hit FROM stage_runs FINAL
        WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
            AND ({stage:String} = '' OR Stage = {stage:String}) AND ({stage:String} != '' OR $root) AND ({failed:UInt8} OR NOT Failed)
            AND cityHash64(TraceId) % {sample:UInt64} = 0
    ) AS r ON t.TraceId = r.TraceId AND t.SpanId = r.SpanId
    WHERE t.Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND t.Timestamp < fromUnixTimestamp64Nano({high:Int64})
        AND cityHash64(t.TraceId) % {sample:UInt64} = 0
)
ARRAY JOIN Pairs AS Pair
WHERE length(Pair.2) BETWEEN 1 AND 200
GROUP BY dimension, value
HAVING runs >= {least:UInt64}
ORDER BY hits DESC
LIMIT 5000
