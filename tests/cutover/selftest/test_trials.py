"""Seeded faults: enough of them, on every layer, and what becomes of one that is not there."""

import pytest

from compare.findings import LAYERS
from cutover.selftest.faults import CodeFault, Fault
from cutover.selftest.trials import SEEDED, Bench, trials
from cutover.wiring.stacks import load_stacks

STACKS = load_stacks()
LEGACY, GRAPH = STACKS["legacy"], STACKS["graph"].flows["chat"]
AT_LEAST = 40


def test_there_are_enough_faults_in_runs_and_in_code_on_every_layer() -> None:
    """At least forty, and no layer is left out in either place."""
    assert len(SEEDED) >= AT_LEAST
    for place in ("run", "code"):
        assert {fault.layer for fault in SEEDED if fault.place == place} == set(LAYERS)


def test_no_two_faults_of_a_place_have_one_name() -> None:
    """A fault that was missed can be told from all others."""
    names = [(fault.place, fault.name) for fault in SEEDED]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def bench() -> Bench:
    """Serve the scene once."""
    return Bench(LEGACY, GRAPH)


@pytest.mark.untraced
@pytest.mark.parametrize("fault", SEEDED, ids=lambda fault: f"{fault.place}: {fault.name}")
def test_a_fault_is_found_as_one_cause_on_its_layer(bench: Bench, fault: Fault) -> None:
    """Neither more, nor elsewhere, nor of another kind."""
    trial = bench.try_out(fault)
    assert trial.detected, trial.found


def test_a_stack_without_a_fault_is_missed_as_one() -> None:
    """What is not there is not found: a trial can fail."""
    heard: list[int] = []
    sound = CodeFault("none", lambda flow: flow, "text", "text_changed")
    (trial,) = trials(LEGACY, GRAPH, [sound], heard.append)
    assert not trial.detected
    assert trial.found == ()
    assert heard == [1]
