SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = 'otel_traces' AND name = 'Marks'
