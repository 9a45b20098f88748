"""Places for open streams: in all, per flow and per stack. Pure counting."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from router.config import LimitSettings
    from router.stack import StackName


Full = Literal["router", "flow", "stack"]
"""What has no place left."""


class Places:
    """Counts who is being served; 0 as a limit is none."""

    def __init__(self) -> None:
        self.open = 0
        self.flows: Counter[str] = Counter()
        self.stacks: Counter[StackName] = Counter()

    def full(self, limits: LimitSettings, flow: str, most: int) -> Full | None:
        """Say what is full for one more stream of a flow that may have `most`."""
        if 0 < limits.streams <= self.open:
            return "router"
        return "flow" if 0 < most <= self.flows[flow] else None

    def stack_full(self, limits: LimitSettings, stack: StackName) -> bool:
        """Whether a stack has as many streams as it may."""
        most = limits.graph_streams if stack == "graph" else limits.legacy_streams
        return 0 < most <= self.stacks[stack]

    def take(self, flow: str, stack: StackName) -> Place:
        """Take a place; whether there is one is asked before."""
        self.open += 1
        self.flows[flow] += 1
        self.stacks[stack] += 1
        return Place(self, flow, stack)


class Place:
    """The place of one stream, counted with the stack that serves it."""

    __slots__ = ("_flow", "_places", "_stack")

    def __init__(self, places: Places, flow: str, stack: StackName) -> None:
        self._places: Places | None = places
        self._flow = flow
        self._stack = stack

    def move(self, stack: StackName) -> None:
        """Another stack serves from now on: never refused, whoever stands in cannot wait."""
        if self._places is not None:
            self._places.stacks[self._stack] -= 1
            self._places.stacks[stack] += 1
            self._stack = stack

    def free(self) -> None:
        """Give it back; once is enough."""
        places, self._places = self._places, None
        if places is not None:
            places.open -= 1
            places.flows[self._flow] -= 1
            places.stacks[self._stack] -= 1


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
