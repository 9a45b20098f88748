"""What a router costs in front of services of their own, beside nginx."""

from benchmarks.remote.measuring import measure

__all__ = ["measure"]
