SELECT Hour, Dirty FROM stage_hours FINAL WHERE Rolled < Dirty AND Hour < {before:DateTime} ORDER BY Hour
