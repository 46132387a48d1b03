"""An agent service in three tiers with real telemetry. Imports nothing of Stagescope; speaks OTLP, Prometheus text and HTTP."""
