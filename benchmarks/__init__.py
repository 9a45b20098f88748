"""Benches: ratios within one run, medians, and the figures that the documents promise."""
