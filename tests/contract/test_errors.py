"""Errors say their facts in one sentence of their own, values quoted."""

from __future__ import annotations

import pytest

from contract.errors import (
    CutoverError,
    EffectFailed,
    Fault,
    Fenced,
    GrammarViolated,
    MissingExtra,
    Paused,
    Refused,
    TapeCut,
    TapeMiss,
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Refused(404, "unknown_message"), "refused with 404 'unknown_message': unknown_message"),
        (Refused(409, "locked", "try later"), "refused with 409 'locked': try later"),
        (EffectFailed(Fault("deadline")), "effect failed with 'deadline'"),
        (
            MissingExtra(adapter="RedisLocks", extra="redis"),
            "'RedisLocks' needs the extra 'redis': pip install 'cutover[redis]'",
        ),
        (TapeCut("ids.new('x')"), "the tape was cut before the end of ids.new('x')"),
        (
            TapeMiss("a", None),
            "no recorded call for a (nothing recorded at that site)",
        ),
        (TapeMiss("a", "b"), "no recorded call for a (nearest on the tape: b)"),
        (Fenced("graph"), "run 'graph' is fenced: another run has taken its place"),
        (Paused("h-1"), "waiting for a human to answer 'h-1'"),
        (GrammarViolated("x", ("a", "b")), "event 'x' where 'a' or 'b' was due"),
    ],
)
def test_every_error_writes_its_own_sentence(error: CutoverError, sentence: str) -> None:
    """And all of them have the one root."""
    assert str(error) == sentence
    assert isinstance(error, CutoverError)
    assert isinstance(error, ImportError) == isinstance(error, MissingExtra)


def test_the_data_of_a_fault_stays_out_of_the_sentence() -> None:
    """Small facts are for the record; a message may end up anywhere."""
    assert "10.0.0.7" not in str(EffectFailed(Fault("model_error", data={"host": "10.0.0.7"})))
