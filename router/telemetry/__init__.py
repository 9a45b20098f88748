"""Telemetry: metrics, traces, the access log and the watchdog of the event loop."""
