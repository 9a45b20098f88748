"""Matching: which calls of two runs stand for each other, in whatever order they were made."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from compare.calls import Call


@dataclass(frozen=True, slots=True)
class Matched:
    """Indices into both runs' lists of calls: those that match, and those that do not."""

    pairs: tuple[tuple[int, int], ...]
    skipped: tuple[int, ...]
    extra: tuple[int, ...]


def match_calls(legacy: list[Call], graph: list[Call]) -> Matched:
    """Match calls: by the entry that answered both, then by what was asked, then by place.

    A call answered by the nearest entry comes after the ones that asked exactly for it. What is
    asked under another site is matched last, if it is the same question.
    """
    matching = _Matching(legacy, graph)
    matching.pass_by(lambda call: call.entry, lambda call: call.how in {"live", "exact"})
    matching.pass_by(lambda call: call.entry, lambda call: call.entry is not None)
    matching.pass_by(lambda call: (call.port, call.op, call.site, call.args), _any)
    matching.pass_by(lambda call: (call.port, call.op, call.site), _any)
    matching.pass_by(lambda call: (call.port, call.op, call.args), _any)
    return Matched(tuple(sorted(matching.pairs)), tuple(matching.legacy), tuple(matching.graph))


def _any(_: Call) -> bool:
    return True


class _Matching:
    def __init__(self, legacy: list[Call], graph: list[Call]) -> None:
        self._calls = legacy, graph
        self.legacy = list(range(len(legacy)))
        self.graph = list(range(len(graph)))
        self.pairs: list[tuple[int, int]] = []

    def pass_by(self, key: Callable[[Call], Hashable], fit: Callable[[Call], bool]) -> None:
        """Match what is left and equal in key, in order; `fit` says which candidate calls may."""
        if not self.legacy or not self.graph:
            return
        old, new = self._calls
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for i in self.legacy:
            waiting[key(old[i])].append(i)
        waiting.pop(None, None)
        taken: set[int] = set()
        left: list[int] = []
        for j in self.graph:
            found = waiting.get(key(new[j])) if fit(new[j]) else None
            if found:
                taken.add(found[0])
                self.pairs.append((found.pop(0), j))
            else:
                left.append(j)
        self.graph = left
        self.legacy = [i for i in self.legacy if i not in taken]


def inverted(pairs: list[tuple[int, int]]) -> bool:
    """Whether pairs, ordered by the first run, stand in another order in the second."""
    return any(after[1] < before[1] for before, after in pairwise(pairs))
