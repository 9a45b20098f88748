"""Pairs: which runs of an exchange are compared."""

from __future__ import annotations

from msgspec.structs import replace

from compare.captures import Question, compare_segment
from compare.input.pairing import Pair, Unpaired, pair_of
from compare.input.segments import CapturedLine
from compare.verdict import verdict_on
from contract.flows.chat import CHAT
from contract.records import encode_run
from cutover.selftest.exchanges import exchange


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


def test_a_replay_goes_with_the_recorded_run_of_the_other_stack() -> None:
    """Read legacy → graph, whichever of the two is the replay."""
    control, candidate = exchange()
    for replayed, basis in (
        ("graph", "legacy as recorded → graph as it is now"),
        ("legacy", "legacy as it is now → graph as recorded"),
    ):
        replay = replace(control, role="replay", stack=replayed)
        pair = pair_of((control, candidate, replay))
        assert isinstance(pair, Pair)
        assert (pair.control.stack, pair.candidate.stack) == ("legacy", "graph")
        assert pair.control is replay or pair.candidate is replay
        assert pair.basis == basis


def test_without_another_stack_a_replay_goes_with_its_own_past() -> None:
    """A regression: what the stack did then, and what it does now."""
    control, candidate = exchange()
    replay = replace(control, role="replay")
    gone = replace(candidate, outcome="cancelled")
    for recorded in ((control,), (control, gone)):
        pair = pair_of((*recorded, replay))
        assert isinstance(pair, Pair)
        assert (pair.control, pair.candidate) == (control, replay)
        assert pair.basis == "legacy as recorded → legacy as it is now"


def test_a_replay_of_what_was_cancelled_has_no_counterpart() -> None:
    """Nobody knows how it would have ended."""
    control, _ = exchange()
    cancelled = replace(control, outcome="cancelled")
    assert pair_of((cancelled, replace(control, role="replay"))) == Unpaired("one run only")


def test_a_replay_after_a_takeover_goes_with_the_run_of_the_other_stack() -> None:
    """The successor's for the stack that failed."""
    failed, shadow = exchange(served="graph")
    failed = replace(failed, outcome="failed")
    successor = replace(shadow, role="fallback")
    replay = replace(failed, role="replay", outcome="completed")
    pair = pair_of((failed, successor, replay))
    assert isinstance(pair, Pair)
    assert (pair.control, pair.candidate) == (successor, replay)


def test_the_verdict_says_what_was_compared_with_what() -> None:
    """A reader must know that a side is a replay."""
    control, _ = exchange()
    tally = compare_segment(
        (
            CapturedLine(k, encode_run(run))
            for k, run in enumerate((control, replace(control, role="replay")))
        ),
        "memory",
        Question({"chat": CHAT}),
    )
    assert verdict_on(tally).reasons == (
        "the one pair is equal",
        "1 pair: legacy as recorded → legacy as it is now",
        "legacy against legacy on one tape: checked, exactly zero differences in 1 pair",
    )
