-- As stages_source.sql; a stage that asked a model server also has the attributes of the server's span that it lacks itself.
SELECT o.* REPLACE (mapUpdate(e.Lent, o.SpanAttributes) AS SpanAttributes), s.Length AS Length, s.SelfTime AS SelfTime,
    s.CriticalTime AS CriticalTime, s.TraceDuration AS TraceDuration,
    s.Gap AS Gap, s.GapSelf AS GapSelf, s.GapCritical AS GapCritical, s.Request AS Request, s.Callee AS Callee, s.TreeMarks AS TreeMarks
FROM
(
    SELECT *$marks, $row AS Row FROM otel_traces
    PREWHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64})
        AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
) AS o
ANY INNER JOIN $shape AS s ON o.Row = s.Row
ANY LEFT JOIN
(
    SELECT $row AS Row, SpanAttributes AS Lent FROM otel_traces
    PREWHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64})
        AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
    WHERE match(SpanName, {engine:String})
) AS e ON s.Lender = e.Row
