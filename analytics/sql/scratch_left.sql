SELECT name FROM system.tables
WHERE database = currentDatabase() AND startsWith(name, {prefix:String}) AND engine = 'Memory'
    AND metadata_modification_time < now() - INTERVAL 1 HOUR
