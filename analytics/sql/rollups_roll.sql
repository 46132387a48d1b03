-- Rollup of `hours`, which lie between `low` and `high`, from the stage runs as they stand now.
INSERT INTO stage_rollups
SELECT Pair.1 AS Dim, toStartOfHour(Timestamp) AS Hour, ServiceName, Stage, Root, toString(Pair.2) AS Value,
    count() AS Runs, countIf(Failed) AS Errors,
    quantilesDDStateIf(0.004, 0.5, 0.95, 0.99, 0.999)(Duration, NOT Failed) AS Latency,
    {revision:UInt64} AS Revision
FROM
(
    SELECT Timestamp, ServiceName, Stage, $root AS Root, Duration, Failed, Tier, Model, Tool, Region, Device, UserTier, Version, Host
    FROM stage_runs FINAL
    WHERE Timestamp >= toDateTime({low:Int64}) AND Timestamp < toDateTime({high:Int64})
        AND toUnixTimestamp(toStartOfHour(Timestamp)) IN {hours:Array(UInt32)}
)
ARRAY JOIN
[
    ('', ''), ('Tier', Tier), ('Model', Model), ('Tool', Tool), ('Region', Region), ('Device', Device), ('UserTier', UserTier),
    ('Version', Version), ('Host', Host)
]::Array(Tuple(LowCardinality(String), LowCardinality(String))) AS Pair
GROUP BY Dim, Hour, ServiceName, Stage, Root, Value
SETTINGS optimize_on_insert = 0, max_partitions_per_insert_block = 1000
