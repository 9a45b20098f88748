"""Equal pairs: nothing is found in them, and they are not the same streams."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import Chunk
from cutover.selftest.alarms import alarms
from cutover.selftest.case import Answer
from cutover.selftest.cases import case
from cutover.selftest.jitter import jittered, recut
from cutover.selftest.meddling import rewritten
from cutover.selftest.serving import stack_of
from cutover.wiring.stacks import load_stacks
from rules.answers import ToolCallAssembly

STACKS = load_stacks()
LEGACY, GRAPH = STACKS["legacy"], STACKS["graph"]
PAIRS = 80


def said(answer: Answer) -> tuple[object, ...]:
    """Put together what an answer says, wherever it was cut."""
    chunks = [step for step in answer if isinstance(step, Chunk)]
    assembly = ToolCallAssembly()
    for chunk in chunks:
        assembly.add(chunk.tool_calls)
    return (
        "".join(chunk.text for chunk in chunks),
        "".join(chunk.reasoning for chunk in chunks),
        assembly.calls(0),
        [chunk.finish for chunk in chunks if chunk.finish],
        [chunk.usage for chunk in chunks if chunk.usage],
    )


@given(st.integers(0, 10_000), st.integers())
def test_a_recut_answer_says_the_same(seed: int, draw: int) -> None:
    """Text, reasoning, calls, ending: all but the cuts and the times."""
    for answer in case(seed).answers:
        assert said(recut(answer, Random(draw))) == said(answer)


def test_two_draws_cut_an_answer_differently() -> None:
    """Jitter is not nothing."""
    draw = Random(1)
    cuts = {repr(jittered(case(12), draw).answers) for _ in range(5)}
    assert len(cuts) > 1


@pytest.mark.slow
def test_equal_pairs_raise_no_alarm() -> None:
    """Independent runs, cut differently: no finding."""
    heard: list[int] = []
    found = alarms(LEGACY, GRAPH, PAIRS, heard.append)
    assert (found.pairs, found.raised, found.first) == (PAIRS, 0, ())
    assert sum(heard) == PAIRS
    assert found.recut > PAIRS // 4
    assert set(found.ended) == {"completed", "refused", "failed"}


@pytest.mark.slow
def test_a_stack_that_differs_raises_alarms() -> None:
    """The alarm bell can ring, and says for which seed."""
    silent = rewritten(lambda before, event: () if len(before) == 1 else (event,))
    spoilt = stack_of("graph", silent(GRAPH.flows["chat"]))
    found = alarms(LEGACY, spoilt, 20, lambda _: None)
    assert found.rate > 0.5
    assert found.first[0].found
