"""The control check: legacy against legacy on one tape must not differ at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from compare.comparison import Comparer, raw_equal
from compare.input.pairing import Pair
from contract.wire.dialect import Wire

NAMED_AT_MOST = 20


class ControlCheck(msgspec.Struct, frozen=True):
    """Pairs of two legacy runs on one tape; the first exchanges that differ are `named`.

    A tape leaves nothing to chance: a difference is the legacy code's (it was changed since, or it
    reads something that is not on the tape) or the harness's own.
    """

    checked: int = 0
    differing: int = 0
    named: tuple[str, ...] = ()

    def merged(self, other: ControlCheck) -> ControlCheck:
        """Add what was checked elsewhere."""
        return ControlCheck(
            self.checked + other.checked,
            self.differing + other.differing,
            (*self.named, *other.named)[:NAMED_AT_MOST],
        )

    @property
    def holds(self) -> bool:
        """Whether it was checked and nothing differed."""
        return self.checked > 0 and not self.differing


NO_CHECK = ControlCheck()


def control_check(pairs: Iterable[Pair], flows: Mapping[str, Wire]) -> ControlCheck:
    """Compare pairs of two legacy runs on one tape, cuts of the text included."""
    checker = ControlChecker(flows)
    for pair in pairs:
        checker.add(pair)
    return checker.check


class ControlChecker:
    """Checks pairs as they come; those of an unknown flow are passed over."""

    def __init__(self, flows: Mapping[str, Wire]) -> None:
        self._comparers = {name: Comparer(spec, "exact") for name, spec in flows.items()}
        self.check = ControlCheck()

    def add(self, pair: Pair) -> None:
        """Compare a pair and count it."""
        comparer = self._comparers.get(pair.flow)
        if comparer is None:
            return
        checked, differing, named = msgspec.structs.astuple(self.check)
        if not raw_equal(pair) and comparer.compare(pair):
            differing += 1
            named = (*named, pair.exchange)[:NAMED_AT_MOST]
        self.check = ControlCheck(checked + 1, differing, named)
