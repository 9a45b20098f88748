"""A rate limit per key: token buckets, the least recently used forgotten first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """Each key may do `burst` things at once and `per_second` things on average.

    Holds at most `keys` buckets: a key forgotten begins with a full one.
    """

    def __init__(self, per_second: float, burst: int, keys: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys = keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Take a token; gives 0, or the seconds until there is one, and then takes none."""
        bucket = self._bucket(key, now)
        filled = bucket.tokens + (now - bucket.at) * self._per_second
        bucket.tokens, bucket.at = min(filled, self._burst), now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_second
        bucket.tokens -= 1
        return 0.0

    def _bucket(self, key: str, now: float) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._burst, now)
            if len(self._buckets) > self._keys:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket
