"""Metrics: what the router tells Prometheus."""
