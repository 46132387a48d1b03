INSERT INTO stage_days (Day, Hours, Revision) SELECT toDateTime({day:UInt32}, 'UTC'), {made_from:UInt64}, {revision:UInt64}
