-- Rows of a window, counted no further than `most`.
SELECT count() FROM
(
    SELECT 1 FROM $table
    WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    LIMIT {most:UInt64}
)
