"""Benchmarks of every layer on this machine: one file a subject, rows from its `measure`.

`plain` is the service others are compared with, written as a team would without cutover.
"""
