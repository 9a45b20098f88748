"""Limits of open streams, in all, per flow and per stack; and of the rate of requests. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Literal

from router.config import LimitSettings
from router.stack import StackName


class OpenStreams:
    """Counts the streams being served; 0 as a limit is none."""

    def __init__(self) -> None:
        self.total = 0
        self.flows: Counter[str] = Counter()
        self.stacks: Counter[StackName] = Counter()

    def full(self, limits: LimitSettings, flow: str, most: int) -> Literal["router", "flow"] | None:
        """Return what is full for one more stream of a flow that may have `most`."""
        if 0 < limits.streams <= self.total:
            return "router"
        return "flow" if 0 < most <= self.flows[flow] else None

    def stack_full(self, limits: LimitSettings, stack: StackName) -> bool:
        """Whether a stack serves as many streams as it may."""
        most = limits.graph_streams if stack == "graph" else limits.legacy_streams
        return 0 < most <= self.stacks[stack]

    def take(self, flow: str, stack: StackName) -> StreamSlot:
        """Count one more stream; check first whether there is a slot."""
        self.total += 1
        self.flows[flow] += 1
        self.stacks[stack] += 1
        return StreamSlot(self, flow, stack)


class StreamSlot:
    """The slot of one stream, counted with the stack that serves it."""

    __slots__ = ("_flow", "_stack", "_streams")

    def __init__(self, streams: OpenStreams, flow: str, stack: StackName) -> None:
        self._streams: OpenStreams | None = streams
        self._flow = flow
        self._stack = stack

    def move(self, stack: StackName) -> None:
        """Count it with another stack, full or not: a fallback cannot wait."""
        if self._streams is not None:
            self._streams.stacks[self._stack] -= 1
            self._streams.stacks[stack] += 1
            self._stack = stack

    def release(self) -> None:
        """Release the slot; idempotent."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.total -= 1
            streams.flows[self._flow] -= 1
            streams.stacks[self._stack] -= 1


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """A rate limit per key: `burst` requests at once and `per_second` on average.

    Holds at most `keys` buckets, the least recently used dropped first; a new one is full.
    """

    def __init__(self, per_second: float, burst: int, keys: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys = keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._burst, now)
            if len(self._buckets) > self._keys:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        filled = bucket.tokens + (now - bucket.at) * self._per_second
        bucket.tokens, bucket.at = min(filled, self._burst), now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_second
        bucket.tokens -= 1
        return 0.0
