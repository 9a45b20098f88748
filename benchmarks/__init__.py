"""Benchmarks: one module a subject, run by `make bench`; outside the wheel, may import anything.

Those of this folder measure served streams, `parts` a part of the code alone, `remote` a stack
behind an address; `plain` is the baseline.
"""
