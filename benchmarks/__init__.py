"""Benchmarks: one module a subject, run by `make bench`; outside the wheel, may import anything."""
