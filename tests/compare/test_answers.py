"""A shadow that asked the model itself: what the model said otherwise is no finding of its own."""

from __future__ import annotations

import msgspec
import pytest

from compare.causes.live_answers import LIVE_ANSWER
from compare.comparison import Comparer
from compare.findings import kind_of
from compare.input.pairing import Pair
from compare.tally import Tally, count_pair
from compare.verdict import verdict_on
from contract.flow import Event, Flow
from contract.flows.chat import CHAT, Send
from contract.model import Chunk, ModelCall
from cutover.selftest.effect_faults import changed_model_calls
from effects.model import ScriptedModel, Step
from tests.compare.pairs import cluster_kinds, paired
from tests.support.faulty_stacks import after, crash, mapped
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ANSWERS, CASE, FLOWS, called, pieces

pytestmark = pytest.mark.virtual

END: tuple[Step, ...] = (Chunk(finish="stop"),)
OTHERWISE = ((*pieces("Hm, "), called("calc"), Chunk(finish="tool_calls")), (*pieces("five"), *END))


async def compared(graph: Flow, *rounds: tuple[Step, ...]) -> tuple[Tally, Pair]:
    """Let a graph flow ask a model of its own in legacy's shadow, and compare them."""

    def script(call: ModelCall) -> tuple[Step, ...]:
        return rounds[any(message.__struct_config__.tag == "tool" for message in call.messages)]

    rules = Rules(shadow=100, mode="live", asks=ScriptedModel(script))
    async with House(CASE, rules, graph=graph) as made:
        await made.ask()
        pair = paired(*made.runs)
    tally = Tally()
    count_pair(tally, pair, Comparer(CHAT))
    return tally, pair


async def test_another_answer_is_no_finding_of_the_pipeline() -> None:
    """Text, frames and tools differ, each marked; the pair is equal but for them."""
    tally, pair = await compared(FLOWS["graph"], *OTHERWISE)
    found = Comparer(CHAT).compare(pair)
    kinds = {kind_of(finding) for finding in found}
    assert {"text_changed", "tool_dropped", "prompt_changed"} <= kinds
    assert LIVE_ANSWER in {finding.after for finding in found}
    assert all(finding.after is not None for finding in found)
    assert (tally.pairs, tally.equal, tally.own_answers, cluster_kinds(tally)) == (1, 1, 1, [])
    assert verdict_on(tally).reasons[2:] == (
        "1 pair: the shadow asked the model itself, what may follow from that is left out",
    )


async def test_the_same_answer_is_equal() -> None:
    """Where the model repeats itself nothing is found; that it was asked is said all the same."""
    tally, _ = await compared(FLOWS["graph"], *ANSWERS)
    assert (tally.equal, tally.own_answers) == (1, 1)


async def test_the_first_question_is_the_pipelines_own() -> None:
    """Another parameter is a cause as ever, and the text follows from it."""
    hotter = changed_model_calls(lambda call: msgspec.structs.replace(call, temperature=2.0))
    tally, _ = await compared(hotter(FLOWS["graph"]), *OTHERWISE)
    assert cluster_kinds(tally) == ["parameter_changed"]
    assert tally.different == 1


def backwards(event: Event) -> Event:
    """Take the text back, but for its last letter."""
    return (
        msgspec.structs.replace(event, content=event.content[-1:])
        if isinstance(event, Send)
        else event
    )


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (after(FLOWS["graph"], 4, crash), "outcome_changed"),
        (mapped(FLOWS["graph"], backwards), "grammar_broken"),
    ],
    ids=["crash", "grammar"],
)
async def test_what_a_stack_does_by_itself_is_its_own(graph: Flow, kind: str) -> None:
    """No answer of a model makes it end otherwise, or break its grammar."""
    tally, _ = await compared(graph, *OTHERWISE)
    assert cluster_kinds(tally) == [kind]


async def test_a_call_nobody_had_made_is_the_models_doing() -> None:
    """It wanted a tool the tape has no answer of: the shadow could not go on, and that is all."""
    again = (*pieces("Hm"), called("dice"), Chunk(finish="tool_calls"))
    tally, pair = await compared(FLOWS["graph"], again, again)
    assert pair.candidate.error is not None
    assert pair.candidate.error.code == "tape_miss"
    assert (tally.equal, cluster_kinds(tally)) == (1, [])
