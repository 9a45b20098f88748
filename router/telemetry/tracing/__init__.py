"""Traces: what the router tells OpenTelemetry."""
