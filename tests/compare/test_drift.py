"""Conversations of a shadow's own: what follows from its own answers is drift, and told apart."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from compare.causes.live_answers import LIVE_ANSWER, OWN_HISTORY
from compare.comparison import Comparer
from compare.findings import PromptChanged, TextChanged, kind_of
from compare.input.pairing import Pair
from compare.noise.messages import TooFew, live_runs
from compare.report.document import report_of
from compare.tally import DEEPEST, Drift, Tally, count_drift, count_pair, drift_of, drift_text
from compare.verdict import verdict_on
from contract.flow import Flow
from contract.flows.companion import COMPANION, CompanionOptions, MessageTurn
from contract.flows.session import SESSION
from contract.model import SystemMessage
from contract.records import OwnHistory, RunRecord
from cutover.selftest.effect_faults import changed_model_calls
from effects.testing import World
from graph_impl import FLOWS
from router.stack import StackName
from tests.compare.pairs import cluster_kinds, paired
from tests.support.router_world import House, Rules
from tests.support.session_conversations import Talk, free, remembering, shadows, talk
from tests.support.tool_replies import ASSIGNED

pytestmark = pytest.mark.virtual


async def talked(rules: Rules, graph: Flow | None = None) -> list[list[RunRecord]]:
    """Hold a conversation of three turns; gives the runs of each."""
    async with House(Talk(), rules, graph=graph) as house:
        await talk(house, 3)
        assert len(shadows(house)) == 3
        return house.captured.batches


def compared(batches: list[list[RunRecord]]) -> tuple[Tally, list[Pair]]:
    """Compare the runs of each exchange."""
    tally, pairs = Tally(), []
    for batch in batches:
        pairs.append(paired(*batch))
        count_pair(tally, pairs[-1], Comparer(SESSION))
    return tally, pairs


def after(pair: Pair) -> set[str | None]:
    """Tell after what the findings of a pair come."""
    return {finding.after for finding in Comparer(SESSION).compare(pair)}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_follows_from_its_own_answers_is_drift(assigned: StackName) -> None:
    """The first turn's text is another live answer; from then on the question differs, too."""
    tally, pairs = compared(await talked(free(assigned=assigned)))
    assert (tally.pairs, tally.equal, tally.own_answers, cluster_kinds(tally)) == (3, 3, 3, [])
    first, *later = pairs
    assert LIVE_ANSWER in after(first)
    assert OWN_HISTORY not in after(first)
    for pair in later:
        found = Comparer(SESSION).compare(pair)
        assert {kind_of(finding) for finding in found} >= {"prompt_changed", "text_changed"}
        assert OWN_HISTORY in after(pair)
        assert None not in after(pair)
        assert LIVE_ANSWER not in after(pair)


async def test_it_is_told_by_depth() -> None:
    """In the reasons of the verdict and in the report, apart from the pipeline's own."""
    tally, _ = compared(await talked(free()))
    drift = (Drift(0, 1, 1), Drift(1, 1, 1), Drift(2, 1, 1))
    assert drift_of(tally.drift) == drift
    assert report_of(tally, "captures", "ignore").drift == drift
    verdict = verdict_on(tally)
    assert verdict.label == "equal"
    told = "texts that differ, by how many answers of its own a shadow was told"
    assert verdict.reasons[3] == f"{told}: 0: 1 of 1, 1: 1 of 1, 2: 1 of 1"


async def test_told_what_was_served_there_is_no_drift() -> None:
    """The first answer differs; later ones, to the same question, do not."""
    tally, pairs = compared(await talked(free(history="served")))
    assert (tally.pairs, tally.equal, cluster_kinds(tally)) == (3, 3, [])
    assert not tally.drift
    assert all(OWN_HISTORY not in after(pair) for pair in pairs)
    kinds = [{kind_of(f) for f in Comparer(SESSION).compare(pair)} for pair in pairs]
    assert ["text_changed" in found for found in kinds] == [True, False, False]
    assert not any("prompt_changed" in found for found in kinds)


def otherwise(**changes: object) -> Flow:
    """Return a graph that asks the model otherwise than it should."""
    asked = changed_model_calls(lambda call: msgspec.structs.replace(call, **changes))
    return asked(FLOWS["session"])


async def test_parameters_are_the_pipelines_own_in_every_turn() -> None:
    """No history brings another temperature about."""
    tally, pairs = compared(await talked(free(), otherwise(temperature=2.0)))
    assert (tally.different, cluster_kinds(tally)) == (3, ["parameter_changed"])
    for pair in pairs[1:]:
        assert OWN_HISTORY in after(pair)


async def test_prompts_are_the_pipelines_own_where_no_own_answer_was_told() -> None:
    """In the first turn, and where its answers are those that were served."""
    curt = otherwise(messages=(SystemMessage("curt"),))
    tally, _ = compared(await talked(free(), curt))
    assert cluster_kinds(tally) == ["prompt_changed"] * 2  # another text, and messages that lack
    tally, pairs = compared(await talked(free(remembering("red"))))
    assert (tally.equal, drift_of(tally.drift)) == (3, tuple(Drift(n, 1, 0) for n in range(3)))
    assert [Comparer(SESSION).compare(pair) for pair in pairs] == [()] * 3


async def test_what_it_asked_is_no_noise() -> None:
    """Another question has another answer: such runs measure nothing."""
    batches = await talked(free())
    legacy = [run for run in batches[1] if run.role == "serving"]
    again = [msgspec.structs.replace(run, exchange="again") for run in legacy]
    chosen = live_runs([*batches[1], *again])
    assert chosen == TooFew("graph was told earlier answers of its own")
    assert not isinstance(live_runs([*batches[0], *again]), TooFew)


async def test_tallies_are_merged_and_bounded() -> None:
    """Parts of captures are counted apart; who was told many counts with the deepest."""
    whole, pairs = compared(await talked(free()))
    other, _ = compared(await talked(free(remembering("red"))))
    whole.merge(other)
    assert drift_of(whole.drift) == (Drift(0, 2, 1), Drift(1, 2, 1), Drift(2, 2, 1))
    run = msgspec.structs.replace(pairs[0].candidate, history=OwnHistory(own=77))
    found = Comparer(SESSION).compare(pairs[0])
    assert any(isinstance(one, TextChanged | PromptChanged) for one in found)
    tally = Tally()
    count_drift(tally.drift, replace(pairs[0], candidate=run), found)
    assert drift_of(tally.drift) == (Drift(DEEPEST, 1, 1),)
    assert drift_text(drift_of(tally.drift)).endswith("20 and more: 1 of 1")


class Companion:
    """A conversation with the companion."""

    spec = COMPANION
    body = MessageTurn(session_id="s", message="hello")
    options = CompanionOptions(enable_tools=False, history_tokens=8)

    def world(self) -> World:
        """Build the world."""
        return World(remembering("red"))


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_a_prompt_sums_up_of_it_is_drift_too(assigned: StackName) -> None:
    """The companion's system prompt tells what was said before: own answers, in another place."""
    async with House(Companion(), free(assigned=assigned)) as house:
        for _ in range(4):
            await house.ask()
        told = [run.history for run in shadows(house)]
        assert told == [OwnHistory(own=n, other=n) for n in range(4)]
        tally = Tally()
        for batch in house.captured.batches:
            count_pair(tally, paired(*batch), Comparer(COMPANION))
    assert (tally.equal, cluster_kinds(tally)) == (4, [])
    assert [one.answers for one in drift_of(tally.drift)] == [0, 1, 2, 3]
