"""Evidence: the statistics behind what reports say; imports nothing of ours but the contract."""

from evidence.intervals import (
    CONFIDENCE,
    PercentileEstimate,
    difference_interval,
    mean_interval,
    percentile,
    percentile_with_interval,
    percentiles,
    share_interval,
)
from evidence.significance import fisher, holm, needed_for_mean, needed_for_rare

__all__ = [
    "CONFIDENCE",
    "PercentileEstimate",
    "difference_interval",
    "fisher",
    "holm",
    "mean_interval",
    "needed_for_mean",
    "needed_for_rare",
    "percentile",
    "percentile_with_interval",
    "percentiles",
    "share_interval",
]
