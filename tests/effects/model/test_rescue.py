"""Every row of the table of docs/rescue.md, against providers that misbehave on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from contract.errors import Fault
from contract.model import Usage
from effects.model import AttemptLine, BreakerPolicy, RescuePolicy
from tests.support.gateways import through_the_gateway
from tests.support.loopback_provider import Answer, Loopback, Wire, in_turn, refusing, serving, sse
from tests.support.misbehaving_providers import (
    NO_WAIT,
    Caller,
    Calling,
    Heard,
    event,
    pair,
    reset,
    said,
    saying,
    silence,
    through_the_port,
)
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.virtual]

SOON = 0.2
"""Seconds of a limit, on a clock that goes on once nothing is on its way any more."""
NEVER = 30.0
SPARE = saying("Hello", ", spare", model="loop-2", usage=7)
WHOLE = saying("Hello", " there", usage=3)
BUSY = refusing(503, b'{"error":{"code":"overloaded"}}')


@dataclass
class Scene:
    """A caller between two providers."""

    caller: Caller
    first: Loopback
    second: Loopback

    @property
    def asked(self) -> tuple[int, int]:
        """How many requests each provider got."""
        return len(self.first.requests), len(self.second.requests)

    @property
    def outcomes(self) -> dict[tuple[str, str], int]:
        """The attempts by model and outcome."""
        return {
            (line.model, line.outcome): count
            for line, count in self.caller.model.counts.attempts.items()
        }


@pytest.fixture(params=[through_the_port, through_the_gateway], ids=["port", "gateway"])
def calling(request: pytest.FixtureRequest) -> Calling:
    """Return a way to call."""
    way: Calling = request.param
    return way


@asynccontextmanager
async def between(
    calling: Calling,
    first: Answer,
    second: Answer = SPARE,
    policy: RescuePolicy = NO_WAIT,
    **limits: float,
) -> AsyncIterator[Scene]:
    """Put a caller between a provider that misbehaves and the one of the fallback model."""
    async with (
        serving(first) as one,
        serving(second) as other,
        calling(pair(one, other, **limits), policy) as caller,
    ):
        yield Scene(caller, one, other)


async def ask(
    calling: Calling, first: Answer, second: Answer | None = SPARE, **limits: float
) -> tuple[Heard, Scene]:
    """Ask once; without a `second` answer there is no fallback."""
    if second is not None:
        async with between(calling, first, second, NO_WAIT, **limits) as scene:
            return await scene.caller.ask(), scene
    async with serving(first) as one, calling([one.entry(**limits)], NO_WAIT) as caller:
        return await caller.ask(), Scene(caller, one, Loopback())


async def fault_of(calling: Calling, first: Answer, **limits: float) -> tuple[Fault, Scene]:
    """Ask where there is no fallback, and return the fault that comes of it."""
    heard, scene = await ask(calling, first, None, **limits)
    assert heard.fault is not None
    return heard.fault, scene


FROM_SPARE = Heard("Hello, spare", model="loop-2", finish="stop", usage=Usage(7, 7, 14))
"""The fallback's answer, whole and under its own name."""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after_ms": "250"}, 0.25),
        (
            {
                "date": "Sat, 21 Nov 2026 21:00:00 GMT",
                "retry_after": "Sat, 21 Nov 2026 21:00:03 GMT",
            },
            3.0,
        ),
    ],
)
async def test_429_with_retry_after(
    calling: Calling, headers: dict[str, str], seconds: float
) -> None:
    """What it says is waited, then the same model is asked."""
    heard, scene = await ask(calling, in_turn(refusing(429, b"{}", **headers), WHOLE))
    assert (heard.text, scene.asked) == ("Hello there", (2, 0))
    [waited] = scene.caller.waits
    assert seconds < waited <= seconds + 1


async def test_429_with_a_retry_after_beyond_the_total_limit(calling: Calling) -> None:
    """The fallback is asked at once; without one the fault says how long to wait."""
    later = refusing(429, retry_after="9")
    heard, scene = await ask(calling, later, total=5)
    assert (heard, scene.asked, scene.caller.waits) == (FROM_SPARE, (1, 1), [])
    fault, _ = await fault_of(calling, later, total=5)
    assert (fault.code, fault.data["retry_after"]) == ("model_rate_limited", 9)


async def test_429_persistent(calling: Calling) -> None:
    """Back-off that grows, few attempts, then the fallback."""
    heard, scene = await ask(calling, refusing(429))
    assert (heard, scene.asked, scene.caller.waits) == (FROM_SPARE, (3, 1), [1, 2])


async def test_500_once(calling: Calling) -> None:
    """One retry on the same provider; a second 500 goes to the fallback."""
    heard, scene = await ask(calling, in_turn(refusing(500), WHOLE))
    assert (heard.text, scene.asked) == ("Hello there", (2, 0))
    heard, scene = await ask(calling, refusing(500))
    assert (heard, scene.asked) == (FROM_SPARE, (2, 1))


async def test_503_persistent(calling: Calling) -> None:
    """Few attempts, then the fallback; the original error if there is nowhere to go."""
    heard, scene = await ask(calling, BUSY)
    assert (heard, scene.asked) == (FROM_SPARE, (3, 1))
    of_both, _ = await ask(calling, BUSY, refusing(401))
    of_one, _ = await fault_of(calling, BUSY)
    for fault, attempts in ((of_both.fault, 4), (of_one, 3)):
        assert fault is not None
        assert (fault.code, fault.data) == (
            "model_unavailable",
            {"status": 503, "code": "overloaded", "attempts": attempts},
        )


async def test_reset_before_headers(calling: Calling) -> None:
    """The same model is asked again."""
    heard, scene = await ask(calling, in_turn(reset, WHOLE))
    assert (heard.text, scene.asked) == ("Hello there", (2, 0))


async def test_accepts_and_never_answers(calling: Calling) -> None:
    """The fallback after the first limit, not after three; alone an honest error."""
    heard, scene = await ask(calling, silence, first_byte=SOON)
    assert (heard, scene.asked) == (FROM_SPARE, (1, 1))
    heard, scene = await ask(calling, silence, first_token=SOON)
    assert (heard, scene.asked) == (FROM_SPARE, (1, 1))
    fault, scene = await fault_of(calling, silence, first_byte=SOON)
    assert (fault.code, scene.asked) == ("model_timeout_first_byte", (1, 0))


async def test_first_token_very_late(calling: Calling) -> None:
    """Headers are no sign of life."""
    heard, scene = await ask(calling, saying(then=silence), first_token=SOON)
    assert (heard, scene.asked) == (FROM_SPARE, (1, 1))


async def test_cut_before_any_content(calling: Calling) -> None:
    """Nothing was sent: the same model is asked again."""
    heard, scene = await ask(calling, in_turn(saying(then=reset), WHOLE))
    assert (heard.text, scene.asked) == ("Hello there", (2, 0))


@pytest.mark.parametrize("broken", [reset, silence])
async def test_cut_or_stalled_in_the_middle(calling: Calling, broken: Answer) -> None:
    """The fallback's answer goes on behind what was sent, as it begins with that."""
    heard, scene = await ask(calling, saying("Hel", "lo", then=broken), idle=SOON)
    assert (heard, scene.asked) == (FROM_SPARE, (1, 1))
    [(over, _), (spliced, _)] = scene.caller.model.counts.followed.items()
    assert (over.rescued, over.then) == ("failed_over", "spare")
    assert spliced == over._replace(rescued="spliced")


async def drip(wire: Wire) -> None:
    """Send signs of life, and no word, until the client has gone."""
    gone = asyncio.create_task(wire.gone())
    signs = (b": PROCESSING\n\n", b"data: {", b'"choices":[]}\n\n', sse(said("loop-1", {})))
    while not gone.done():
        for sign in signs:
            await wire.send(sign)
        await asyncio.wait({gone}, timeout=SOON / 4)


async def test_signs_of_life_without_a_word(calling: Calling) -> None:
    """Bytes and comments end neither limit: the fallback answers long before the total limit."""
    for texts in (("Hello",), ()):
        dripping = saying(*texts, then=drip)
        heard, scene = await ask(calling, dripping, idle=SOON, first_token=2 * SOON, total=NEVER)
        assert (heard, scene.asked) == (FROM_SPARE, (1, 1))


@pytest.mark.parametrize("speaks", ["the second", "the first"])
async def test_hedging(calling: Calling, speaks: str) -> None:
    """A ready fallback is called beside a silent model; the one that speaks first answers alone."""
    both = asyncio.Event()
    slow = asyncio.Event()

    async def first(wire: Wire) -> None:
        await wire.head()
        if speaks == "the second":
            await wire.gone()
            slow.set()
        await both.wait()
        await saying_on(wire)

    async def second(wire: Wire) -> None:
        both.set()
        if speaks == "the second":
            await SPARE(wire)
            return
        await wire.gone()
        slow.set()

    async with between(calling, first, second, replace(NO_WAIT, hedge=SOON)) as scene:
        heard = await scene.caller.ask()
        async with asyncio.timeout(PATIENCE_S):
            await slow.wait()  # the other one was dropped at once
    won, lost = ("loop-2", "loop-1") if speaks == "the second" else ("loop-1", "loop-2")
    assert (heard.model, heard.fault, scene.asked) == (won, None, (1, 1))
    assert scene.outcomes == {(lost, "left"): 1, (won, "completed"): 1}
    assert scene.caller.model.counts.rescues == {"hedged": 1}


async def saying_on(wire: Wire) -> None:
    """Send an answer whose head has been sent."""
    await wire.events(
        said("loop-1", {"content": "Hello"}), said("loop-1", {}, finish_reason="stop")
    )
    await wire.end()


@pytest.mark.parametrize("fails", ["the first", "the second"])
async def test_one_of_two_hedged_models_fails(calling: Calling, fails: str) -> None:
    """The other one goes on alone, and is called once."""
    both, failed = asyncio.Event(), asyncio.Event()

    async def first(wire: Wire) -> None:
        await both.wait()
        if fails == "the first":
            await BUSY(wire)
            failed.set()
            return
        await failed.wait()
        await WHOLE(wire)

    async def second(wire: Wire) -> None:
        both.set()
        if fails == "the second":
            await BUSY(wire)
            failed.set()
            return
        await failed.wait()
        await SPARE(wire)

    async with between(calling, first, second, replace(NO_WAIT, hedge=SOON)) as scene:
        heard = await scene.caller.ask()
    text, model = ("Hello, spare", "loop-2") if fails == "the first" else ("Hello there", "loop-1")
    assert (heard.text, heard.model, heard.fault) == (text, model, None)
    assert scene.asked == (1, 1)


async def test_a_model_that_speaks_in_time_is_not_hedged(calling: Calling) -> None:
    """Nor is anything hedged by default."""
    for policy in (NO_WAIT, replace(NO_WAIT, hedge=NEVER)):
        async with between(calling, WHOLE, SPARE, policy) as scene:
            heard = await scene.caller.ask()
        assert (heard.text, scene.asked) == ("Hello there", (1, 0))
    assert RescuePolicy().hedge is None


@pytest.mark.parametrize(
    ("broken", "code"), [(reset, "model_truncated"), (silence, "model_timeout_idle")]
)
async def test_another_answer_is_not_put_behind(
    calling: Calling, broken: Answer, code: str
) -> None:
    """What was sent stays true: an honest error, and what came of it is counted."""
    heard, scene = await ask(calling, saying("Hey", then=broken), idle=SOON)
    assert (heard.text, heard.finish, heard.usage) == ("Hey", "", None)
    assert heard.fault is not None
    assert (heard.fault.code, heard.fault.data["spliced"]) == (code, False)
    assert scene.asked == (1, 1)
    assert scene.outcomes == {("loop-1", code): 1, ("loop-2", "unlike"): 1}


async def test_cut_in_the_middle_without_a_fallback(calling: Calling) -> None:
    """The same model begins anew, once."""
    cut = saying("Hel", then=reset)
    heard, _ = await ask(calling, in_turn(cut, WHOLE), None)
    assert (heard.text, heard.finish, heard.fault) == ("Hello there", "stop", None)
    heard, scene = await ask(calling, cut, None)
    assert heard.text == "Hel"
    assert heard.fault is not None
    assert (heard.fault.code, scene.asked) == ("model_truncated", (2, 0))


def calls(call_id: str, *arguments: str, then: Answer | None = None) -> Answer:
    """Answer with one tool call."""
    opening = {"index": 0, "id": call_id, "type": "function", "function": {"name": "add"}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in arguments]
    deltas = [said("loop-1", {"tool_calls": [one]}) for one in (opening, *rest)]

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(*deltas)
        if then is not None:
            await then(wire)
            return
        await wire.events(said("loop-1", {}, finish_reason="tool_calls"))
        await wire.end()

    return answer


@pytest.mark.parametrize(("call_id", "goes_on"), [("call_1", True), ("call_2", False)])
async def test_cut_inside_a_tool_call(calling: Calling, call_id: str, *, goes_on: bool) -> None:
    """It goes on only where it is the same call."""
    cut = calls("call_1", '{"a"', then=reset)
    heard, _ = await ask(calling, cut, calls(call_id, '{"a":', "1}"))
    assert heard.arguments == ('{"a":1}' if goes_on else '{"a"')
    assert (heard.fault is None) is goes_on


async def test_a_malformed_chunk(calling: Calling, caplog: pytest.LogCaptureFixture) -> None:
    """Passed over and counted; the rest is heard."""
    heard, scene = await ask(calling, saying("Hello", then=broken_chunk), None)
    assert (heard.text, heard.finish, heard.fault) == ("Hello there", "stop", None)
    assert scene.asked == (1, 0)
    assert "passed over 1 malformed" in caplog.text


async def broken_chunk(wire: Wire) -> None:
    """Send half a chunk, then the rest of the answer."""
    await wire.events(b'{"choices":[{"del')
    await wire.events(
        said("loop-1", {"content": " there"}), said("loop-1", {}, finish_reason="stop")
    )
    await wire.send(b"data: [DONE]\n\n")
    await wire.end()


async def test_no_done(calling: Calling) -> None:
    """Complete is complete: no second request, and no waiting for the connection's end."""
    last = event(said("loop-1", {}, finish_reason="stop"))
    heard, scene = await ask(calling, saying("Hello", then=last), tail=SOON)
    assert (heard.text, heard.finish, heard.fault) == ("Hello", "stop", None)
    assert scene.asked == (1, 0)


async def test_usage_after_the_last_choice(calling: Calling) -> None:
    """It is read and reported; where none comes there is none."""
    for answer, usage in ((WHOLE, Usage(3, 3, 6)), (saying("Hello"), None)):
        heard, scene = await ask(calling, answer, None)
        assert (heard.usage, scene.asked) == (usage, (1, 0))


TOO_LONG = refusing(400, b'{"error":{"code":"context_length_exceeded"}}')


async def test_context_length_exceeded(calling: Calling) -> None:
    """No retry on that model; the fallback, which has a larger context."""
    heard, scene = await ask(calling, TOO_LONG)
    assert (heard, scene.asked) == (FROM_SPARE, (1, 1))
    fault, scene = await fault_of(calling, TOO_LONG)
    assert (fault.code, scene.asked) == ("model_context_length", (1, 0))


async def test_content_policy(calling: Calling) -> None:
    """Neither asked again nor elsewhere: our own code, and the provider's as a fact."""
    refused = refusing(400, b'{"error":{"code":"content_policy_violation","message":"no"}}')
    heard, scene = await ask(calling, refused)
    fault = heard.fault
    assert fault is not None
    assert (fault.code, fault.data["code"]) == ("model_content_policy", "content_policy_violation")
    assert scene.asked == (1, 0)


async def test_never_a_prefill(calling: Calling) -> None:
    """A restart asks the same question: nothing of the first answer is in it."""
    _, scene = await ask(calling, saying("Hel", then=reset))
    [before], [after] = scene.first.requests, scene.second.requests
    assert after.body == {**before.body, "model": "loop-2"}
    assert [message["role"] for message in after.body["messages"]] == ["user"]


async def test_a_flapping_provider(calling: Calling) -> None:
    """The breaker opens, serves the fallback, lets one probe through after its rest, closes."""
    policy = replace(NO_WAIT, attempts=1, breaker=BreakerPolicy(calls=3, rest=60))
    flapping = in_turn(BUSY, BUSY, BUSY, WHOLE)
    async with between(calling, flapping, policy=policy) as scene:
        for _ in range(5):
            assert await scene.caller.ask() == FROM_SPARE
        assert scene.asked == (3, 5), "the last two did not ask it any more"
        await asyncio.sleep(60)
        probe, *rest = [(await scene.caller.ask()).text for _ in range(3)]
        assert {probe, *rest} == {"Hello there"}
        assert scene.asked == (6, 5)


ERROR = event({"error": {"type": "server_error", "code": "overloaded"}})


async def test_an_error_inside_the_stream(calling: Calling) -> None:
    """An error, also before the first content; it is rescued like one with a status."""
    for texts, requests in (((), (3, 1)), (("Hello",), (1, 1))):
        heard, scene = await ask(calling, saying(*texts, then=ERROR))
        assert (heard, scene.asked) == (FROM_SPARE, requests)
    heard, _ = await ask(calling, saying("Hello", then=ERROR), None)
    assert heard.fault is not None
    assert (heard.text, heard.fault.code) == ("Hello", "model_error")


async def test_after_failing_over(calling: Calling, caplog: pytest.LogCaptureFixture) -> None:
    """Name and usage are the fallback's; failed attempts are no completions, and visible."""
    heard, scene = await ask(calling, BUSY)
    assert (heard.model, heard.usage) == ("loop-2", Usage(7, 7, 14))
    assert scene.caller.model.counts.attempts == {
        AttemptLine("m", "loopback", "loop-1", "model_unavailable"): 3,
        AttemptLine("spare", "second", "loop-2", "completed"): 1,
    }
    assert scene.caller.model.counts.rescues == {"retried": 2, "failed_over": 1}
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "model 'loop-1' of provider 'loopback': model_unavailable; called again in 1.00 s",
        "model 'loop-1' of provider 'loopback': model_unavailable; called again in 2.00 s",
        "model 'loop-1' of provider 'loopback': model_unavailable; 'loop-2' of 'second' is next",
    ]
