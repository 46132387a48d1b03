INSERT INTO stage_hours (Hour, Rolled) SELECT toDateTime(arrayJoin({hours:Array(UInt32)})), {revision:UInt64}
