-- Hours and how they are rolled up now. `revision` is that of the rollup of their day, 0 unless all hours of the day are fresh and the
-- day was made from them as they are; `made_from` names their present state, 0 while any of them is not fresh.
SELECT toUnixTimestamp(Hour) AS hour, Fresh AS fresh, toUnixTimestamp(Day) AS day, AllFresh * State AS made_from,
    if(AllFresh AND State = made.Hours, made.Revision, 0) AS revision
FROM
(
    SELECT Hour, toStartOfDay(Hour, 'UTC') AS Day, Rolled >= Dirty AS Fresh,
        min(Rolled >= Dirty) OVER (PARTITION BY toStartOfDay(Hour, 'UTC')) AS AllFresh,
        sum(cityHash64(Hour, Rolled)) OVER (PARTITION BY toStartOfDay(Hour, 'UTC')) AS State
    FROM stage_hours FINAL
    WHERE Hour >= fromUnixTimestamp64Nano({low:Int64}) AND Hour < fromUnixTimestamp64Nano({high:Int64})
) AS hourly
LEFT JOIN (SELECT Day, Hours, Revision FROM stage_days FINAL) AS made USING (Day)
ORDER BY hour
