"""Pairs: which runs of an exchange are compared."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compare.input.pairing import Unpaired, is_untaped, pair_of
from compare.verdict import verdict_on
from contract.records import RunRecord
from cutover.selftest.exchanges import exchange
from tests.compare.pairs import paired, tallied

CONTROL, CANDIDATE = exchange()
FAILED, SHADOW = exchange(served="graph")
CANCELLED = replace(CONTROL, outcome="cancelled")
REPLAY = replace(CONTROL, role="replay")


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ((CONTROL,), "one run only"),
        ((CONTROL, replace(CANDIDATE, stack="legacy")), "both runs of one stack"),
        ((CONTROL, replace(CANDIDATE, outcome="cancelled")), "cancelled"),
        (
            (replace(CONTROL, redacted=True), replace(CANDIDATE, role="replay")),
            "redacted: replay both stacks",
        ),
        # How it would have ended is unknown.
        ((CANCELLED, REPLAY), "one run only"),
    ],
)
def test_runs_that_cannot_be_compared_have_a_reason(
    runs: tuple[RunRecord, ...], reason: str
) -> None:
    """Counted by reason."""
    assert pair_of(runs) == Unpaired(reason)


SUCCESSOR = replace(SHADOW, role="fallback")
REPLAYS = REPLAY, replace(CANDIDATE, role="replay")
GONE = replace(CANDIDATE, outcome="cancelled")
LATER = replace(FAILED, role="replay", outcome="completed")


@pytest.mark.parametrize(
    ("runs", "chosen"),
    [
        # After a takeover, the failed run and its successor, not the shadow.
        ((FAILED, SHADOW, SUCCESSOR), (SUCCESSOR, FAILED)),
        # Two replays, never with the recorded frames.
        ((CONTROL, *REPLAYS), REPLAYS),
        # A replay with its own past, where there is no run of the other stack.
        ((CONTROL, REPLAY), (CONTROL, REPLAY)),
        ((CONTROL, GONE, REPLAY), (CONTROL, REPLAY)),
        # A replay after a takeover with the successor, for the stack that failed.
        ((replace(FAILED, outcome="failed"), SUCCESSOR, LATER), (SUCCESSOR, LATER)),
    ],
    ids=["successor", "replays", "own past", "other cancelled", "replay of a failure"],
)
def test_the_runs_that_belong_together_are_paired(
    runs: tuple[RunRecord, ...], chosen: tuple[RunRecord, RunRecord]
) -> None:
    """Control first, whichever served; the tape is the serving run's."""
    pair = paired(*runs)
    assert (pair.control, pair.candidate) == chosen
    assert pair.tape == runs[0].tape
    replayed = [run for run in chosen if run.role == "replay"]
    if chosen[0].stack == chosen[1].stack:
        assert pair.basis == "legacy as recorded → legacy as it is now"
    assert bool(pair.basis) == bool(replayed)


@pytest.mark.parametrize(
    ("replayed", "basis"),
    [
        ("graph", "legacy as recorded → graph as it is now"),
        ("legacy", "legacy as it is now → graph as recorded"),
    ],
)
def test_a_replay_goes_with_the_recorded_run_of_the_other_stack(replayed: str, basis: str) -> None:
    """Read legacy → graph, whichever of the two is the replay."""
    replay = replace(REPLAY, stack=replayed)
    pair = paired(CONTROL, CANDIDATE, replay)
    assert (pair.control.stack, pair.candidate.stack) == ("legacy", "graph")
    assert pair.control is replay or pair.candidate is replay
    assert pair.basis == basis


def test_the_verdict_names_what_was_compared_with_what() -> None:
    """A reader must know that a side is a replay."""
    equal, _, *rest = verdict_on(tallied((CONTROL, REPLAY))).reasons
    assert equal == "the one pair is equal"
    assert rest == [
        "1 pair: legacy as recorded → legacy as it is now",
        "legacy against legacy on one tape: checked, exactly zero differences in 1 pair",
    ]


def test_a_shadow_without_a_tape_answered_for_itself() -> None:
    """As services do that ask a model on their own; a tape, or a refusal, leaves nothing to ask."""
    bare = [replace(run, tape=(), plays=()) for run in exchange()]
    assert is_untaped(paired(*bare))
    assert not is_untaped(paired(*exchange()))
    assert not is_untaped(paired(*(replace(run, outcome="refused") for run in bare)))
    assert not is_untaped(paired(bare[0], replace(bare[1], role="replay")))
    assert tallied(tuple(bare)).untaped == 1
