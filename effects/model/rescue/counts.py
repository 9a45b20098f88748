"""What rescues have done since the start: failed attempts are no completions, but not hidden."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

Rescued = Literal["retried", "failed_over", "spliced", "not_spliced", "given_up"]


class Attempt(NamedTuple):
    """One line of the books: whom was asked, and what came of it.

    `outcome` is `completed`, `left` (the caller went), `unlike` (a second answer that did not begin
    as the first) or the code of the fault.
    """

    model_id: str
    provider: str
    model: str
    outcome: str


class Followed(NamedTuple):
    """What followed an attempt that did not complete.

    `model_id` is the model that failed, `reason` how, `then` the one asked next: "" where none was.
    """

    model_id: str
    rescued: Rescued
    reason: str
    then: str = ""


class RescueCounts:
    """Counters anybody may read."""

    __slots__ = ("attempts", "followed")

    def __init__(self) -> None:
        self.attempts: Counter[Attempt] = Counter()
        self.followed: Counter[Followed] = Counter()

    @property
    def rescues(self) -> Counter[Rescued]:
        """What followed, by kind alone."""
        kinds: Counter[Rescued] = Counter()
        for line, count in self.followed.items():
            kinds[line.rescued] += count
        return kinds
