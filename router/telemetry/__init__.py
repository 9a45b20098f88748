"""Telemetry: metrics, traces, the access log and the health of the process."""
