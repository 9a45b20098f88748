"""The self-test: seeded faults are found, equal pairs raise no alarm, and the command says so."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from compare.findings import LAYERS
from contract.model import Chunk, ModelCall
from cutover.cli import app
from cutover.selftest.cases import Answer, case
from cutover.selftest.equal_pairs import Alarm, Alarms, compare_equal_pairs, jittered, recut
from cutover.selftest.stream_faults import CodeFault, rewritten
from cutover.selftest.trials import (
    SEEDED,
    VERSION,
    Bench,
    Outcome,
    SeededFault,
    Trial,
    encode_outcome,
)
from cutover.wiring.stacks import load_stacks
from router.serving.stack import LocalStack
from rules.conversation import ModelAnswer

STACKS = load_stacks()
LEGACY, GRAPH = STACKS["legacy"], STACKS["graph"]
PAIRS = 80


@pytest.fixture(scope="module")
def bench() -> Bench:
    """Serve the scene once."""
    return Bench(LEGACY, GRAPH.flows["chat"])


def test_at_least_forty_faults_cover_every_layer_in_runs_and_in_code() -> None:
    """No layer is left out in either place."""
    assert len(SEEDED) >= 40
    for place in ("run", "code"):
        assert {fault.layer for fault in SEEDED if fault.place == place} == set(LAYERS)


def test_names_of_faults_are_unique() -> None:
    """A fault that was missed can be told from all others."""
    names = [(fault.place, fault.name) for fault in SEEDED]
    assert len(set(names)) == len(names)


@pytest.mark.untraced
@pytest.mark.parametrize("fault", SEEDED, ids=lambda fault: f"{fault.place}: {fault.name}")
def test_a_fault_is_found_as_one_cause_on_its_layer(bench: Bench, fault: SeededFault) -> None:
    """Neither more, nor elsewhere, nor of another kind."""
    trial = bench.trial(fault)
    assert trial.detected, trial.found


def test_a_stack_without_a_fault_is_missed(bench: Bench) -> None:
    """A trial can fail: what is not there is not found."""
    trial = bench.trial(CodeFault("none", lambda flow: flow, "text", "text_changed"))
    assert (trial.detected, trial.found) == (False, ())


def content(answer: Answer) -> tuple[object, ...]:
    """Return what an answer says, wherever it is cut."""
    chunks = [step for step in answer if isinstance(step, Chunk)]
    calls = ModelAnswer()
    for chunk in chunks:
        calls.add(Chunk(tool_calls=chunk.tool_calls))
    return (
        "".join(chunk.text for chunk in chunks),
        "".join(chunk.reasoning for chunk in chunks),
        calls.calls(ModelCall(model_id="m", messages=(), tool_choice="auto")),
        [chunk.finish for chunk in chunks if chunk.finish],
        [chunk.usage for chunk in chunks if chunk.usage],
    )


@given(st.integers(0, 10_000), st.integers())
def test_a_recut_answer_says_the_same(seed: int, draw: int) -> None:
    """Text, reasoning, calls, ending: all but the cuts and the times."""
    for answer in case(seed).answers:
        assert content(recut(answer, Random(draw))) == content(answer)


def test_two_draws_cut_an_answer_differently() -> None:
    """The jitter changes something."""
    draw = Random(1)
    cuts = {repr(jittered(case(12), draw).answers) for _ in range(5)}
    assert len(cuts) > 1


@pytest.mark.untraced
@pytest.mark.slow
def test_equal_pairs_raise_no_alarm() -> None:
    """Independent runs, cut differently: no finding."""
    halves = range(PAIRS // 2), range(PAIRS // 2, PAIRS)
    first, second = (compare_equal_pairs(LEGACY, GRAPH, seeds) for seeds in halves)
    found = first.merged(second)
    assert (found.pairs, found.raised, found.first) == (PAIRS, 0, ())
    assert found.recut > PAIRS // 2 // 4  # every second pair is on one tape
    assert set(found.ended) == {"completed", "refused", "failed", "paused"}


@pytest.mark.slow
def test_a_stack_that_differs_raises_alarms() -> None:
    """Each alarm names its seed's findings."""
    silent = rewritten(lambda before, event: () if len(before) == 1 else (event,))
    flows = {name: silent(flow) for name, flow in GRAPH.flows.items()}
    spoilt = LocalStack("graph", flows, "graph under test")
    found = compare_equal_pairs(LEGACY, spoilt, range(20))
    assert found.rate > 0.5
    assert found.first[0].found


def trial(layer: str, *, detected: bool = True) -> Trial:
    """Return a trial on a layer."""
    fields = {"fault": "f", "place": "run", "layer": layer, "kind": "k", "found": ()}
    return msgspec.convert(fields | {"detected": detected}, Trial)


EVERY = tuple(map(trial, ("outcome", "grammar", "frames", "text", "effects")))
CALM = Alarms(1, 0, 1, {"completed": 1}, ())
UNSOUND = [
    (Outcome(VERSION, EVERY[1:], CALM), "no fault was tried on the layer 'outcome'"),
    (Outcome(VERSION, (*EVERY, trial("text", detected=False)), CALM), "1 of 6 faults"),
    (Outcome(VERSION, EVERY, Alarms(0, 0, 0, {}, ())), "no equal pair was compared"),
    (Outcome(VERSION, EVERY, Alarms(2, 1, 1, {}, (Alarm(0, ("x",)),))), "1 of 2 equal pairs"),
]


@pytest.mark.parametrize(("outcome", "reason"), UNSOUND)
def test_an_unsound_outcome_gives_its_reason(outcome: Outcome, reason: str) -> None:
    """No data is not a pass, either."""
    (given_reason,) = outcome.reasons()
    assert given_reason.startswith(reason)
    assert not outcome.sound


def test_an_outcome_decodes_to_what_was_encoded() -> None:
    """The JSON is all of it."""
    outcome = UNSOUND[-1][0]
    assert msgspec.json.decode(encode_outcome(outcome), type=Outcome) == outcome


@pytest.mark.slow
def test_the_command_finds_every_fault_and_raises_no_alarm(tmp_path: Path) -> None:
    """Rates by layer on the screen, everything in the file, exit status 0."""
    done = CliRunner().invoke(app, ["selftest", "--pairs=20", "--faults=40", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "sound" in done.output
    assert f"{len(SEEDED)} of {len(SEEDED)}" in done.output
    written = (tmp_path / "selftest.json").read_bytes()
    outcome = msgspec.json.decode(written, type=Outcome)
    assert (len(outcome.trials), outcome.alarms.pairs) == (len(SEEDED), 20)
    assert len(outcome.drawn) == 40
    assert [rate.trials for rate in outcome.rates] == [40, 40, 40]
