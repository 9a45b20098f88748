"""Failures of stacks in this process: one line of the log for each served run and shadow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contract.flow import Flow
from contract.flows.chat import Send
from router.stack import StackName
from tests.support.faulty_stacks import Act, after, cancelled, crash, hang, instead, mapped, short
from tests.support.log_records import Lines, listening
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, shouted

pytestmark = pytest.mark.virtual

Break = Callable[[Flow, int], Flow]


def acting(act: Act) -> Break:
    """Break by an act after so many events."""
    return lambda flow, events: after(flow, events, act)


def foreign(flow: Flow, events: int) -> Flow:
    """Send an event that is not due there."""
    return instead(flow, events, Send(content="SECRET"))


FAULTS: dict[str, tuple[Break, str, str]] = {
    "it raises": (acting(crash), "failed", "crash"),
    "it cancels itself": (acting(cancelled), "failed", "crash"),
    "it hangs": (acting(hang), "timeout", "stall"),
    "it ends too early": (short, "truncated", "truncated"),
    "an event that is not due": (foreign, "failed", "grammar"),
}
AS_SHADOW = {"it hangs": "shadow_timeout"}


def facts(lines: Lines) -> list[tuple[str, ...]]:
    """Return role, stack, outcome, reason and what followed, of each failure."""
    names = "role", "stack", "outcome", "reason", "then"
    return [tuple(line.get(name, "") for name in names) for line in lines.failures]


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("events", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failure_of_the_serving_stack(fault: str, events: int, assigned: StackName) -> None:
    """With what followed for the client, and without a word of what was written."""
    breaks, outcome, reason = FAULTS[fault]
    how, stands_in = "takeover" if events else "fallback", other(assigned)
    ends = "failure frames" if events else "status 500"
    for allowed, then in ((True, f"{how} by {stands_in}"), (False, ends)):
        with listening() as lines:
            broken = breaks(FLOWS[assigned], events)
            async with both(assigned, broken, FLOWS[stands_in], stand_in=allowed) as made:
                served = await made.ask()
        assert facts(lines) == [("serving", assigned, outcome, reason, then)]
        assert lines.exchanges("run failed") == [served.exchange]
        assert [line["exchange"] for line in lines.failures] == [served.exchange]
        assert [line["flow"] for line in lines.failures] == ["chat"]
        assert "secret" not in repr(lines.said).lower()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if FAULTS[fault][0] is not foreign])
async def test_a_failure_of_a_shadow(fault: str) -> None:
    """Its client sees nothing of it; an event that is not due is left to the comparison."""
    breaks, outcome, reason = FAULTS[fault]
    rules = Rules(shadow=100, shadow_seconds=20.0)
    with listening() as lines:
        async with House(CASE, rules, graph=breaks(FLOWS["graph"], 1)) as made:
            served = await made.ask()
    assert facts(lines) == [("shadow", "graph", outcome, AS_SHADOW.get(fault, reason), "")]
    assert [line["exchange"] for line in lines.failures] == [served.exchange]


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_takeover_that_fails_is_a_line_of_its_own(assigned: StackName) -> None:
    """By a crash, or because the other stack says something else."""
    stands_in = other(assigned)
    broken, failing = after(FLOWS[assigned], 4, crash), after(FLOWS[stands_in], 5, crash)
    different = mapped(FLOWS[stands_in], shouted)
    for second, reason in ((failing, "crash"), (different, "prefix_mismatch")):
        with listening() as lines:
            async with both(assigned, broken, second) as made:
                await made.ask()
        assert facts(lines) == [
            ("serving", assigned, "failed", "crash", f"takeover by {stands_in}"),
            ("fallback", stands_in, "failed", reason, "failure frames"),
        ]


async def test_what_is_no_failure_is_no_line() -> None:
    """A whole exchange with its shadow, a refusal by the flow, a client that leaves."""
    with listening() as lines:
        async with House(CASE, Rules(shadow=100)) as made:
            await made.ask()
            await made.ask(leaves_after=2)
            await made.ask(type(CASE.body)(message_id="unknown"))
    assert lines.failures == []


async def test_a_crash_is_logged_with_its_lines() -> None:
    """The innermost of the stack's own first, each with what called it."""
    with listening() as lines:
        async with both("graph", after(FLOWS["graph"], 2, crash), FLOWS["legacy"]) as made:
            await made.ask()
    [line] = lines.failures
    assert line["kind"] == "Boom"
    first, second, *_ = line["why"].removeprefix("at ").split(" < ")
    assert first.startswith("tests/support/faulty_stacks.py:")
    assert second.startswith("tests/support/faulty_stacks.py:")
