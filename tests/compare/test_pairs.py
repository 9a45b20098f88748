"""Pairs: which runs of an exchange are compared."""

from __future__ import annotations

from msgspec.structs import replace

from compare.pairs import Pair, Unpaired, pair_of
from tests.compare.exchanges import exchange


def test_runs_that_cannot_be_compared_say_why() -> None:
    """Counted by reason."""
    control, candidate = exchange()
    assert pair_of((control,)) == Unpaired("one run only")
    assert pair_of((control, replace(candidate, stack="legacy"))) == Unpaired(
        "both runs of one stack"
    )
    assert pair_of((control, replace(candidate, outcome="cancelled"))) == Unpaired("cancelled")
    redacted = replace(control, redacted=True)
    assert pair_of((redacted, replace(candidate, role="replay"))) == Unpaired(
        "redacted: replay both stacks"
    )


def test_a_failed_run_is_paired_with_its_successor_not_with_a_shadow() -> None:
    """After a takeover, whoever is legacy is the control."""
    failed, shadow = exchange(served="graph")
    successor = replace(shadow, role="fallback")
    pair = pair_of((failed, shadow, successor))
    assert isinstance(pair, Pair)
    assert (pair.control, pair.candidate) == (successor, failed)
    assert pair.tape == failed.tape


def test_two_replays_are_compared_with_each_other() -> None:
    """Never with the recorded frames."""
    control, candidate = exchange()
    replays = replace(control, role="replay"), replace(candidate, role="replay")
    pair = pair_of((control, *replays))
    assert isinstance(pair, Pair)
    assert (pair.control, pair.candidate) == replays
