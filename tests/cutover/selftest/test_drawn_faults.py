"""Drawn faults: what a seed draws, that scenes are equal without one, and how rates count."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import ModelCall, SystemMessage, UserMessage
from contract.stores import Turn
from cutover.selftest.deployment import compared
from cutover.selftest.drawn.changes import Spoiler, draw_change
from cutover.selftest.drawn.grammar import DRAWS, DrawnFault, draw_fault
from cutover.selftest.drawn.wrappers import Probe
from cutover.selftest.scenes import SCENES, WIRE_SPECS, wire_flow
from cutover.selftest.trials import (
    VERSION,
    DrawnTrial,
    Outcome,
    drawn_trial,
    drawn_trials,
    rates_of,
)
from tests.cutover.selftest.test_selftest import CALM, EVERY, GRAPH, LEGACY

CALL = ModelCall(
    model_id="m",
    messages=(SystemMessage("答得短。\n2026-11-21"), UserMessage("3 pears")),
    temperature=0.5,
)
TURN = Turn(message_id="m-1", role="user", content="a b", chat_id=None)


@pytest.mark.parametrize("scenes", SCENES)
def test_scenes_without_a_fault_are_equal(scenes: str, tmp_path: Path) -> None:
    """Every request makes a pair, and what a fault's report names is the fault's."""
    name = SCENES[scenes][0].spec.name
    flows = LEGACY.flows.get(name), GRAPH.flows.get(name)
    legacy, graph = (wire_flow(scenes),) * 2 if scenes in WIRE_SPECS else flows
    assert legacy is not None
    assert graph is not None
    tally = compared(SCENES[scenes], legacy, graph, tmp_path)
    assert (tally.pairs, tally.equal) == (len(SCENES[scenes]),) * 2
    assert not tally.damage


def test_a_seed_draws_the_same_faults_and_another_one_others() -> None:
    """A fault that was missed can be made again."""

    def names(seed: int) -> list[str]:
        return [trial.fault for trial in drawn_trials(seed, range(8))]

    assert names(1) == names(1)
    assert names(1) != names(2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS, ids=lambda kind: kind.__name__)
def test_every_rule_of_the_grammar_makes_faults(kind: Any, tmp_path: Path) -> None:
    """None of them fits nothing."""
    draw = Random(kind.__name__)
    for number in range(60):
        fault = kind(draw, draw.choice(list(SCENES)))
        trial = drawn_trial(LEGACY, GRAPH, fault, number, tmp_path / str(number))
        if trial is not None:
            return
    pytest.fail("no draw has changed anything")


def test_a_draw_that_changes_nothing_is_no_fault(tmp_path: Path) -> None:
    """It is not counted, neither as found nor as missed."""
    fault = DrawnFault("chat", "nothing", "at all", frozenset(), probe=Probe())
    assert drawn_trial(LEGACY, GRAPH, fault, 0, tmp_path) is None


@given(st.integers(), st.sampled_from([CALL, TURN]))
def test_a_spoiler_has_fired_when_the_value_is_another(seed: int, value: msgspec.Struct) -> None:
    """What it makes is a valid value of the same type."""
    draw = Random(seed)
    spoiler = Spoiler(draw_change(draw), draw.random())
    made = spoiler.spoil(value)
    assert spoiler.fired is (made != value)
    assert msgspec.convert(msgspec.to_builtins(made), type(value)) == made


@given(st.integers())
def test_a_spoiler_stays_within_its_paths(seed: int) -> None:
    """The rest of the value is as it was."""
    draw = Random(seed)
    made = Spoiler(draw_change(draw), draw.random(), ("messages.[].content",)).spoil(CALL)
    assert msgspec.structs.replace(made, messages=CALL.messages) == CALL


def test_names_of_faults_say_scenes_part_and_change() -> None:
    """A person can tell what was done."""
    drawn = [draw_fault(Random(seed)) for seed in range(40)]
    assert len({fault.name for fault in drawn}) > 20
    assert all(fault.name.startswith(f"{fault.scenes}: {fault.part}") for fault in drawn)


def drawn_of(*found: str, on_layer: bool = True) -> DrawnTrial:
    """Return a trial that found some causes."""
    return DrawnTrial(0, "f", "chat", ("text",), found, on_layer and bool(found))


def test_a_missed_fault_stays_in_every_rate() -> None:
    """Neither the hits nor the number of trials leave it out."""
    trials = drawn_of("a"), drawn_of("a", "b"), drawn_of("a", on_layer=False), drawn_of()
    rates = rates_of(trials)
    assert [(rate.measure, rate.hits, rate.trials) for rate in rates] == [
        ("found", 3, 4),
        ("on their layer", 2, 4),
        ("as one cause", 2, 4),
    ]
    assert all(rate.low < rate.share < rate.high for rate in rates)


def test_too_many_missed_faults_are_not_sound() -> None:
    """The reason gives the count."""
    trials = (drawn_of("a"), *[drawn_of()] * 9)
    outcome = Outcome(VERSION, EVERY, CALM, 0, trials, rates_of(trials))
    assert not outcome.sound
    assert next(iter(outcome.reasons())).startswith("1 of 10 drawn faults were found: fewer")
