"""What exchanges add to the metrics: read off when they have ended, and bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from contract.flows.chat import ChatRequest
from contract.model import Chunk, Usage
from contract.ports import Effects
from router.config.schema import BreakerSettings
from router.stack import StackName
from router.telemetry import instruments as i
from router.telemetry.instruments import MOST_CODES, CodeLabels, Instrument
from router.telemetry.metrics import ExchangeMetrics, MetricValues
from tests.support.faulty_stacks import Boom, after, crash, hang
from tests.support.flow_runs import Case
from tests.support.metrics_page import Labels, shown
from tests.support.router_world import House, Rules, Served
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, other, pieces

pytestmark = pytest.mark.virtual

MODEL = CASE.options.model_id


WHO = ("chat", "legacy", "legacy")


class Counted:
    """One request that was served and counted; these models are configured."""

    def __init__(self, *models: str) -> None:
        self.values = MetricValues()
        self.observer = ExchangeMetrics(self.values, lambda: frozenset(models or (MODEL,)))
        self.served: Served
        self.house: House

    def __getitem__(self, key: Instrument | tuple[Instrument, str]) -> dict[Labels, float]:
        """Return what is shown for an instrument, or for a part of a histogram."""
        return shown(self.values, *(key if isinstance(key, tuple) else (key,)))

    async def ask(
        self, case: Case = CASE, body: Any = None, asking: Any = None, **rules: Any
    ) -> Counted:
        """Serve one request; `flows` are stacks, `price` is what calls cost."""
        flows, price = rules.pop("flows", {}), rules.pop("price", priced)
        rules["observers"] = [self.observer]
        async with House(case, Rules(**rules), price=price, **flows) as self.house:
            self.served = await self.house.ask(body, **(asking or {}))
        return self


def priced(_answered: str, usage: Usage) -> float:
    """Price a call by its tokens alone."""
    return usage.total_tokens / 1_000


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_an_exchange_is_timed_and_counted(assigned: StackName) -> None:
    """The times are those of the frames the client got, on the router's own clock."""
    counted = await Counted().ask(assigned=assigned, shadow=100)
    run = counted.house.runs[0]
    ended = counted.house.contexts[counted.served.exchange].ended
    who = ("chat", assigned, assigned)
    texts = [at for at, frame in run.frames if '"SEND"' in frame and '"content":""' not in frame]
    assert run.frames[0][0] < texts[0] < run.frames[-1][0] <= ended
    moments = {i.FIRST_FRAME: run.frames[0][0], i.FIRST_TEXT: texts[0], i.DURATION: ended}
    moments[i.LAST_FRAME] = run.frames[-1][0]
    for histogram, at in moments.items():
        assert counted[histogram, "_sum"] == {who: at / 1e6}
        assert counted[histogram, "_count"] == {who: 1}
    assert counted[i.EXCHANGES] == {(*who, "completed"): 1}
    assert counted[i.FALLBACKS] == counted[i.REFUSALS] == {}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_the_model_used_is_counted_once(assigned: StackName) -> None:
    """For the run that asked it; a shadow on the tape uses nothing."""
    counted = await Counted().ask(assigned=assigned, shadow=100)
    assert counted.house.states == {"compared(equal)": 1}
    what = ("chat", assigned, "serving", MODEL, MODEL)
    assert counted[i.TOKENS] == {(*what, "input"): 1, (*what, "output"): 2}
    assert counted[i.COST] == {what: pytest.approx(0.003)}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_nodes_of_each_run_are_timed(assigned: StackName) -> None:
    """Those of the shadow apart; and each run as a whole."""
    counted = await Counted().ask(assigned=assigned, shadow=100)
    runs = counted.house.runs
    assert [run.role for run in runs] == ["serving", "shadow"]
    sums = counted[i.NODES, "_sum"]
    for run in runs:
        who = ("chat", run.stack, run.role)
        assert {node: sums[*who, node] for node in run.nodes} == {
            node: spent / 1e6 for node, spent in run.nodes.items()
        }
        assert counted[i.RUNS, "_sum"][who] == run.run_us / 1e6
    assert set(counted[i.NODES, "_count"].values()) == {1}
    assert len(sums) == sum(len(run.nodes) for run in runs)


async def test_a_node_that_is_named_in_a_users_words_has_no_label_of_its_own() -> None:
    """A team names the nodes of its own flow; a name may be made of what was sent."""

    def named(request: Any, effects: Effects) -> AsyncIterator[Any]:
        for name in (f"answer {request.body.content}", "my_node"):
            with effects.trace.node(name):
                pass
        return FLOWS["legacy"](request, effects)

    counted = await Counted().ask(flows={"legacy": named})
    nodes = {labels[-1] for labels in counted[i.NODES, "_count"]}
    assert {"other", "my_node", "initialize"} <= nodes
    assert not any("answer" in node for node in nodes)


async def test_a_model_nobody_configured_has_no_label_of_its_own() -> None:
    """Users write the ids of models; what has no price has no cost."""
    counted = await Counted("another").ask(price=lambda *_: None)
    assert {labels[3:5] for labels in counted[i.TOKENS]} == {("other", "other")}
    assert counted[i.COST] == {}


async def test_tokens_are_those_of_the_model_that_answered() -> None:
    """Not of the one that was asked and failed; and so is what they cost."""
    answered = (Chunk(text="Hello", by="spare"), Chunk(finish="stop", usage=Usage(1, 2, 3)))
    costs = {"spare": 0.5, MODEL: 7.0}
    counted = await Counted(MODEL, "spare").ask(
        Case(CASE.body, CASE.options, (answered,)), price=lambda by, _: costs[by]
    )
    assert [use.by for use in counted.house.runs[0].models] == ["spare"]
    what = ("chat", "legacy", "serving", "spare", MODEL)
    assert counted[i.TOKENS] == {(*what, "input"): 1, (*what, "output"): 2}
    assert counted[i.COST] == {what: 0.5}


@pytest.mark.parametrize(("events", "how"), [(0, "fallback"), (5, "takeover")])
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_stand_in_counts_against_who_was_assigned(
    assigned: StackName, events: int, how: str
) -> None:
    """With its reason, and what the client waited for the stack that had failed."""
    hanging = after(FLOWS[assigned], events, hang)
    counted = await Counted().ask(assigned=assigned, flows={assigned: hanging})
    lost = counted.served.stream.lost_us / 1e6
    who = ("chat", assigned, other(assigned))
    assert counted[i.EXCHANGES] == {(*who, "completed"): 1}
    assert counted[i.FALLBACKS] == {(*who, how, "stall"): 1}
    assert counted[i.FALLBACK_LOST] == {who: lost}
    assert lost >= 10
    assert (counted[i.FIRST_FRAME, "_sum"][who] >= 10) is (how == "fallback")


async def test_who_serves_instead_of_a_spared_stack_counts_as_standing_in() -> None:
    """From the start: nothing was lost."""
    counted = Counted()
    rules = Rules(observers=[counted.observer])
    async with House(CASE, rules, legacy=after(FLOWS["legacy"], 0, crash)) as made:
        breaker = BreakerSettings(least_requests=1)
        made.settings = made.settings.model_copy(update={"breaker": breaker})
        await made.ask()
        await made.ask()
    who = ("chat", "legacy", "graph")
    assert counted[i.FALLBACKS] == {
        (*who, "fallback", "crash"): 1,
        (*who, "breaker", "breaker"): 1,
    }


async def test_a_failure_nobody_stands_in_for_is_an_outcome() -> None:
    """And what the client got of it is timed."""
    crashing = {"legacy": after(FLOWS["legacy"], 2, crash)}
    counted = await Counted().ask(stand_in=False, flows=crashing)
    assert counted[i.EXCHANGES] == {(*WHO, "failed"): 1}
    assert counted[i.FIRST_FRAME, "_count"] == {WHO: 1}


async def test_a_client_that_leaves_before_anything_came_is_not_timed() -> None:
    """There is nothing it waited for to the end; the exchange is counted all the same."""
    silent = {"legacy": after(FLOWS["legacy"], 0, hang)}
    counted = await Counted().ask(asking={"leaves_after": 0, "lingers": 1.0}, flows=silent)
    assert counted[i.EXCHANGES] == {(*WHO, "cancelled"): 1}
    assert counted[i.FIRST_FRAME, "_count"] == {}


async def test_frames_that_were_let_go_of_have_no_time() -> None:
    """What is left of them would tell a later one's."""
    long = Case(CASE.body, CASE.options, ((*pieces(*"x" * 40), Chunk(finish="stop")),))
    counted = await Counted().ask(long, exchange_bytes=1_000)
    assert counted.served.stream.run.dropped
    assert counted[i.DURATION, "_count"] == {WHO: 1}
    assert counted[i.FIRST_FRAME] == counted[i.FIRST_TEXT] == {}


async def test_refusals_are_counted_by_code() -> None:
    """A flow's by its own code, the router's by the problem's."""
    counted = await Counted().ask(body=ChatRequest(message_id="unknown"))
    counted.observer.refused("chat", 422, "invalid_request")
    assert counted[i.REFUSALS] == {
        ("chat", "404", "unknown_message"): 1,
        ("chat", "422", "invalid_request"): 1,
    }
    assert counted[i.EXCHANGES] == {(*WHO, "refused"): 1}


async def test_an_observer_that_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The exchange is served, recorded and settled; the log says what happened."""

    class Broken(ExchangeMetrics):
        def finished(self, _: object) -> None:
            raise Boom

        def settled(self, *_: object) -> None:
            raise Boom

    counted = Counted()
    broken = Broken(counted.values, frozenset)
    rules = Rules(shadow=100, observers=[broken, counted.observer])
    async with House(CASE, rules) as made:
        await made.ask()
        assert made.states == {"compared(equal)": 1}
        assert made.router.ledger.open == 0
    assert sum(counted[i.EXCHANGES].values()) == 1
    assert [record.message for record in caplog.records] == [
        "an observer failed on 'finished'",
        "an observer failed on 'settled'",
    ]


@pytest.mark.parametrize("value", ["ann@example.org", "Hello there", "13812345678", "x" * 41])
def test_what_is_no_code_is_no_label(value: str) -> None:
    """A stack may put a user's words into its codes."""
    assert CodeLabels()(value) == "other"


def test_codes_are_bounded() -> None:
    """Those that were known stay, however many come."""
    codes = CodeLabels()
    assert [codes(f"code_{n}") for n in range(MOST_CODES)] == [
        f"code_{n}" for n in range(MOST_CODES)
    ]
    assert codes("one_more") == "other"
    assert codes("code_1") == "code_1"


def test_tools_have_names_rather_than_codes() -> None:
    """As servers of tools choose them; bounded as codes are."""
    tools = CodeLabels(names=True)
    assert tools("files__readAll-2") == "files__readAll-2"
    assert tools("read all files") == "other"
    assert CodeLabels()("readAll") == "other"
