"""`cutover selftest`: what it prints, writes, and exits with."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.selftest.alarms import Alarm, Alarms
from cutover.selftest.mutants import Mutants, Survivor
from cutover.selftest.outcome import VERSION, Outcome, encode_outcome
from cutover.selftest.trials import SEEDED, Trial

SURVIVOR = Survivor("run.py:1", "run", "0 → 1")


def trial(layer: str, *, detected: bool = True) -> Trial:
    """Give a trial on a layer."""
    return msgspec.convert(
        {
            "fault": "f",
            "place": "run",
            "layer": layer,
            "kind": "k",
            "found": (),
            "detected": detected,
        },
        Trial,
    )


EVERY = tuple(map(trial, ("outcome", "grammar", "frames", "text", "effects")))
CALM = Alarms(1, 0, 1, {"completed": 1}, ())
UNSOUND = [
    (Outcome(VERSION, EVERY[1:], CALM), "no fault was tried on the layer 'outcome'"),
    (Outcome(VERSION, (*EVERY, trial("text", detected=False)), CALM), "1 of 6 faults"),
    (Outcome(VERSION, EVERY, Alarms(0, 0, 0, {}, ())), "no equal pair was compared"),
    (Outcome(VERSION, EVERY, Alarms(2, 1, 1, {}, (Alarm(0, ("x",)),))), "1 of 2 equal pairs"),
    (Outcome(VERSION, EVERY, CALM, Mutants(2, 1, {}, (SURVIVOR,))), "1 mutants survived"),
]


@pytest.mark.parametrize(("outcome", "reason"), UNSOUND)
def test_an_outcome_that_is_not_sound_says_why(outcome: Outcome, reason: str) -> None:
    """No data is not a pass, either."""
    (said,) = outcome.reasons()
    assert said.startswith(reason)
    assert not outcome.sound


def test_an_explained_survivor_is_sound() -> None:
    """A mutant that changes nothing counts neither way."""
    explained = msgspec.structs.replace(SURVIVOR, reason="a name")
    mutants = Mutants(2, 2, {"compared": 1}, (explained,))
    assert Outcome(VERSION, EVERY, CALM, mutants).sound
    assert (mutants.found, mutants.telling, mutants.rate) == (1, 1, 1.0)


def test_an_outcome_is_read_back_as_it_was_written() -> None:
    """The JSON is all of it."""
    outcome = UNSOUND[-1][0]
    assert msgspec.json.decode(encode_outcome(outcome), type=Outcome) == outcome


@pytest.mark.slow
def test_the_command_finds_every_fault_and_raises_no_alarm(tmp_path: Path) -> None:
    """Rates by layer on the screen, everything in the file, exit status 0."""
    done = CliRunner().invoke(app, ["selftest", "--pairs=20", "--no-mutants", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "sound" in done.output
    assert f"{len(SEEDED)} of {len(SEEDED)}" in done.output
    written = (tmp_path / "selftest.json").read_bytes()
    outcome = msgspec.json.decode(written, type=Outcome)
    assert (len(outcome.trials), outcome.alarms.pairs, outcome.mutants) == (len(SEEDED), 20, None)
