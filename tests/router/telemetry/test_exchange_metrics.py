"""What exchanges add to the metrics: read off when they have ended, and bounded."""

from __future__ import annotations

import pytest

from contract.flows.chat import ChatRequest
from contract.model import Chunk, Usage
from router.config.schema import BreakerSettings
from router.stack import StackName
from router.telemetry import instruments as i
from router.telemetry.instruments import MOST_CODES, CodeLabels
from router.telemetry.metrics import ExchangeMetrics, MetricValues
from tests.support.faulty_stacks import Boom, after, crash, hang
from tests.support.flow_runs import Case
from tests.support.metrics_page import shown
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, pieces

pytestmark = pytest.mark.virtual

MODEL = CASE.options.model_id


def observed(panel: MetricValues, *models: str) -> ExchangeMetrics:
    """Make the observer of a panel; these models are configured."""
    return ExchangeMetrics(panel, lambda: frozenset(models or (MODEL,)))


def priced(_answered: str, usage: Usage) -> float:
    """Price a call by its tokens alone."""
    return usage.total_tokens / 1_000


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_an_exchange_is_timed_and_counted(assigned: StackName) -> None:
    """The times are those of the frames the client got, on the router's own clock."""
    panel = MetricValues()
    rules = Rules(assigned=assigned, shadow=100, observers=[observed(panel)])
    async with House(CASE, rules, price=priced) as made:
        served = await made.ask()
        run = made.runs[0]
    who = ("chat", assigned, assigned)
    texts = [at for at, frame in run.frames if '"SEND"' in frame and '"content":""' not in frame]
    assert run.frames[0][0] < texts[0] < run.frames[-1][0]
    assert shown(panel, i.FIRST_FRAME, "_sum") == {who: run.frames[0][0] / 1e6}
    assert shown(panel, i.FIRST_TEXT, "_sum") == {who: texts[0] / 1e6}
    assert shown(panel, i.DURATION, "_sum") == {who: made.contexts[served.exchange].ended / 1e6}
    assert made.contexts[served.exchange].ended >= run.frames[-1][0]
    for histogram in (i.FIRST_FRAME, i.FIRST_TEXT, i.DURATION):
        assert shown(panel, histogram, "_count") == {who: 1}
    assert shown(panel, i.EXCHANGES) == {(*who, "completed"): 1}
    assert shown(panel, i.FALLBACKS) == shown(panel, i.REFUSALS) == {}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_the_model_used_is_counted_once(assigned: StackName) -> None:
    """For the run that asked it; a shadow on the tape uses nothing."""
    panel = MetricValues()
    rules = Rules(assigned=assigned, shadow=100, observers=[observed(panel)])
    async with House(CASE, rules, price=priced) as made:
        await made.ask()
        assert made.states == {"compared(equal)": 1}
    what = ("chat", assigned, "serving", MODEL, MODEL)
    assert shown(panel, i.TOKENS) == {(*what, "input"): 1, (*what, "output"): 2}
    assert shown(panel, i.COST) == {what: pytest.approx(0.003)}


async def test_a_model_nobody_configured_has_no_label_of_its_own() -> None:
    """Users write the ids of models."""
    panel = MetricValues()
    async with House(CASE, Rules(observers=[observed(panel, "another")])) as made:
        await made.ask()
    assert {labels[3:5] for labels in shown(panel, i.TOKENS)} == {("other", "other")}
    assert shown(panel, i.COST) == {}


async def test_tokens_are_those_of_the_model_that_answered() -> None:
    """Not of the one that was asked and failed; and so is what they cost."""
    panel = MetricValues()
    answered = (Chunk(text="Hello", by="spare"), Chunk(finish="stop", usage=Usage(1, 2, 3)))
    case = Case(CASE.body, CASE.options, (answered,))
    costs = {"spare": 0.5, MODEL: 7.0}
    rules = Rules(observers=[observed(panel, MODEL, "spare")])
    async with House(case, rules, price=lambda by, _: costs[by]) as made:
        await made.ask()
        assert [use.by for use in made.runs[0].models] == ["spare"]
    what = ("chat", "legacy", "serving", "spare", MODEL)
    assert shown(panel, i.TOKENS) == {(*what, "input"): 1, (*what, "output"): 2}
    assert shown(panel, i.COST) == {what: 0.5}


@pytest.mark.parametrize(("events", "how"), [(0, "fallback"), (5, "takeover")])
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_stand_in_counts_against_who_was_assigned(
    assigned: StackName, events: int, how: str
) -> None:
    """With its reason, and what the client waited for the stack that had failed."""
    panel = MetricValues()
    hanging = after(FLOWS[assigned], events, hang)
    async with both(assigned, hanging, FLOWS[other(assigned)], observers=[observed(panel)]) as made:
        served = await made.ask()
        lost = served.stream.lost_us / 1e6
    who = ("chat", assigned, other(assigned))
    assert shown(panel, i.EXCHANGES) == {(*who, "completed"): 1}
    assert shown(panel, i.FALLBACKS) == {(*who, how, "stall"): 1}
    assert shown(panel, i.FALLBACK_LOST) == {who: lost}
    assert lost >= 10
    first = shown(panel, i.FIRST_FRAME, "_sum")[who]
    assert (first >= 10) is (how == "fallback")


async def test_who_serves_instead_of_a_spared_stack_counts_as_standing_in() -> None:
    """From the start: nothing was lost."""
    panel = MetricValues()
    rules = Rules(observers=[observed(panel)])
    async with House(CASE, rules, legacy=after(FLOWS["legacy"], 0, crash)) as made:
        breaker = BreakerSettings(least_requests=1)
        made.settings = made.settings.model_copy(update={"breaker": breaker})
        await made.ask()
        await made.ask()
    who = ("chat", "legacy", "graph")
    assert shown(panel, i.FALLBACKS) == {
        (*who, "fallback", "crash"): 1,
        (*who, "breaker", "breaker"): 1,
    }


async def test_a_failure_nobody_stands_in_for_is_an_outcome() -> None:
    """And what the client got of it is timed."""
    panel = MetricValues()
    rules = Rules(stand_in=False, observers=[observed(panel)])
    crashing = after(FLOWS["legacy"], 2, crash)
    async with House(CASE, rules, legacy=crashing) as made:
        await made.ask()
    who = ("chat", "legacy", "legacy")
    assert shown(panel, i.EXCHANGES) == {(*who, "failed"): 1}
    assert shown(panel, i.FIRST_FRAME, "_count") == {who: 1}


async def test_a_client_that_leaves_before_anything_came_is_not_timed() -> None:
    """There is nothing it waited for to the end; the exchange is counted all the same."""
    panel = MetricValues()
    silent = after(FLOWS["legacy"], 0, hang)
    async with House(CASE, Rules(observers=[observed(panel)]), legacy=silent) as made:
        await made.ask(leaves_after=0, lingers=1.0)
    who = ("chat", "legacy", "legacy")
    assert shown(panel, i.EXCHANGES) == {(*who, "cancelled"): 1}
    assert shown(panel, i.FIRST_FRAME, "_count") == {}


async def test_frames_that_were_let_go_of_have_no_time() -> None:
    """What is left of them would tell a later one's."""
    panel = MetricValues()
    long = Case(CASE.body, CASE.options, ((*pieces(*"x" * 40), Chunk(finish="stop")),))
    rules = Rules(exchange_bytes=1_000, observers=[observed(panel)])
    async with House(long, rules) as made:
        served = await made.ask()
        assert served.stream.run.dropped
    who = ("chat", "legacy", "legacy")
    assert shown(panel, i.DURATION, "_count") == {who: 1}
    assert shown(panel, i.FIRST_FRAME) == shown(panel, i.FIRST_TEXT) == {}


async def test_refusals_are_counted_by_code() -> None:
    """A flow's by its own code, the router's by the problem's."""
    panel = MetricValues()
    observer = observed(panel)

    async with House(CASE, Rules(observers=[observer])) as made:
        await made.ask(ChatRequest(message_id="unknown"))
    observer.refused("chat", 422, "invalid_request")
    assert shown(panel, i.REFUSALS) == {
        ("chat", "404", "unknown_message"): 1,
        ("chat", "422", "invalid_request"): 1,
    }
    assert shown(panel, i.EXCHANGES) == {("chat", "legacy", "legacy", "refused"): 1}


async def test_an_observer_that_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The exchange is served, recorded and settled; the log says what happened."""

    class Broken(ExchangeMetrics):
        def finished(self, _: object) -> None:
            raise Boom

        def settled(self, *_: object) -> None:
            raise Boom

    panel = MetricValues()
    broken = Broken(panel, frozenset)
    rules = Rules(shadow=100, observers=[broken, observed(panel)])
    async with House(CASE, rules) as made:
        await made.ask()
        assert made.states == {"compared(equal)": 1}
        assert made.router.ledger.open == 0
    assert sum(shown(panel, i.EXCHANGES).values()) == 1
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
