"""What is done next, with a clock one can move and lots one can choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import Fault, FaultCode
from effects.circuit_breaker import Result
from effects.model import (
    BreakerPolicy,
    Limits,
    ModelEntry,
    Provider,
    ProviderBreakers,
    RescuePolicy,
)
from effects.model.errors import Facts
from effects.model.retry import (
    LEAST_WAIT,
    CallModel,
    GiveUp,
    Rescue,
    RescueMeans,
    RetryAfter,
    RetryStep,
)
from effects.model.splice import Extent

PROVIDER = Provider("here", "http://127.0.0.1:1/v1", limits=Limits(total=100))
SMALL = ModelEntry("small", PROVIDER, "small-1", context_tokens=1_000)
LARGE = ModelEntry("large", PROVIDER, "large-1", context_tokens=100_000)
BUSY = Fault("model_unavailable", retryable=True, data={"status": 503})
CUT = Fault("model_truncated", retryable=True, data={"malformed": 0})
RESULTS: tuple[Result, ...] = ("failure", "ignored")
POLICY = RescuePolicy(attempts=3, first_wait=1, longest_wait=10)


def way(
    *models: ModelEntry,
    policy: RescuePolicy = POLICY,
    draw: float = 0.5,
    breakers: ProviderBreakers | None = None,
) -> Rescue:
    """Make a rescue of a call to the first model, with the others as its fallbacks."""
    named = replace(models[0], fallbacks=tuple(model.model_id for model in models[1:]))
    entries = {model.model_id: model for model in (named, *models[1:])}
    means = RescueMeans(policy, breakers or ProviderBreakers(policy.breaker), lambda: draw)
    return Rescue(named, entries, means, ends=100)


def limited(seconds: float | None = None) -> Fault:
    """Make a 429, with how long to wait if that is said."""
    told = {} if seconds is None else {"retry_after": seconds}
    return Fault("model_rate_limited", retryable=True, data={"status": 429, **told})


def story(
    rescue: Rescue, faults: Sequence[Fault], said: Extent = "nothing", now: float = 0
) -> list[str | float]:
    """Let attempts fail one after the other; return models called, waits in between, the end."""
    told: list[str | float] = []
    step: RetryStep = rescue.next(now)
    left = iter(faults)
    while True:
        match step:
            case CallModel(entry):
                told.append(entry.model_id)
                fault = next(left, None)
                if fault is None:
                    return told
                step = rescue.failed(fault, now, said)
            case RetryAfter(seconds):
                told.append(seconds)
                now += seconds
                step = rescue.next(now)
            case GiveUp(fault):
                return [*told, fault.code]


def test_back_off_doubles_and_is_drawn() -> None:
    """Equal jitter: from half to the whole, so that no attempts follow each other at once."""
    policy = replace(POLICY, attempts=6, longest_wait=4)
    for draw in (1, 0.5, 0):
        told = story(way(SMALL, policy=policy, draw=draw), [BUSY] * 5)
        assert told[1::2] == [(1 + draw) / 2 * seconds for seconds in (1, 2, 4, 4, 4)]


def test_few_attempts_then_the_next_model_then_the_original_fault() -> None:
    """The fallbacks' own trouble is not the user's; how often was asked is a fact."""
    other = Fault("model_auth", data={"status": 401})
    rescue = way(SMALL, LARGE, draw=1)
    faults = [BUSY, BUSY, BUSY, other]
    told = ["small", 1, "small", 2, "small", "large", "model_unavailable"]
    assert story(rescue, faults) == told
    assert rescue.mismatched().fault.data == {"status": 503, "attempts": 4, "spliced": False}


def test_what_the_provider_asks_for_is_waited() -> None:
    """Never less, and not by all at one moment."""
    assert story(way(SMALL, draw=0), [limited(3)]) == ["small", 3 + LEAST_WAIT, "small"]
    assert story(way(SMALL, draw=1), [limited(3)]) == ["small", 4, "small"]
    assert story(way(SMALL, draw=1), [limited(0)]) == ["small", LEAST_WAIT, "small"]


def test_a_longer_wait_than_users_have_is_not_waited() -> None:
    """The next model is asked at once; without one the fault is told at once."""
    assert story(way(SMALL, LARGE), [limited(30)]) == ["small", "large"]
    assert story(way(SMALL), [limited(30)]) == ["small", "model_rate_limited"]


def test_no_wait_reaches_beyond_the_total_limit() -> None:
    """What is left of it is the cap."""
    assert story(way(SMALL, LARGE), [limited(3)], now=98) == ["small", "large"]
    assert story(way(SMALL), [limited(3)], now=98) == ["small", "model_rate_limited"]
    assert story(way(SMALL), [], now=100) == ["model_unavailable"]


def test_a_500_is_asked_once_more() -> None:
    """Then the next model."""
    broken = Fault("model_unavailable", retryable=True, data={"status": 500})
    told = ["small", 0.75, "small", "large", 0.75, "large", "model_unavailable"]
    assert story(way(SMALL, LARGE), [broken] * 4) == told


@pytest.mark.parametrize("code", ["model_timeout_first_byte", "model_timeout_first_token"])
def test_silence_is_waited_out_once(code: FaultCode) -> None:
    """The next model after the first silence, no second one of the same."""
    fault = Fault(code, retryable=True, data={"seconds": 3})
    assert story(way(SMALL, LARGE), [fault]) == ["small", "large"]
    assert story(way(SMALL), [fault]) == ["small", code]


@pytest.mark.parametrize("code", ["model_truncated", "model_timeout_idle", "model_error"])
def test_an_answer_that_breaks_is_begun_anew(code: FaultCode) -> None:
    """By the next model, or once more by the same; before anything was said it is asked again."""
    fault = Fault(code, retryable=True)
    assert story(way(SMALL, LARGE), [fault], "something") == ["small", "large"]
    again = ["small", 0.75, "small", code]
    assert story(way(SMALL), [fault, fault], "something") == again
    assert story(way(SMALL, LARGE), [fault]) == ["small", 0.75, "small"]
    assert story(way(SMALL, LARGE), [fault], "too_much") == ["small", code]


def test_an_unknown_context_may_be_a_larger_one() -> None:
    """Neither a fallback nor a model whose context is not stated is taken for 128 000 tokens."""
    fault = Fault("model_context_length", data={"status": 400})
    unknown = ModelEntry("unknown", PROVIDER, "unknown-1")
    million = ModelEntry("million", PROVIDER, "million-1", context_tokens=1_000_000)
    assert story(way(unknown, LARGE), [fault]) == ["unknown", "large"]
    assert story(way(million, unknown), [fault]) == ["million", "unknown"]
    assert story(way(million, LARGE), [fault]) == ["million", "model_context_length"]


def test_a_fallback_stands_ready_while_its_breaker_is_closed() -> None:
    """And while its context is large enough."""
    breakers = ProviderBreakers(BreakerPolicy(calls=1, rest=50))
    rescue = way(SMALL, LARGE, breakers=breakers)
    assert rescue.ready(0) is LARGE
    breakers.of(LARGE).record(None, "failure", 0)
    assert rescue.ready(0) is None
    assert rescue.hedge(0) is None
    assert way(SMALL).ready(0) is None


def test_a_context_too_long_goes_to_a_larger_one_alone() -> None:
    """Never to one as small, and the same model is not asked again."""
    fault = Fault("model_context_length", data={"status": 400})
    tiny = ModelEntry("tiny", PROVIDER, "tiny-1", context_tokens=500)
    assert story(way(SMALL, tiny, LARGE), [fault]) == ["small", "large"]
    assert story(way(SMALL, tiny), [fault]) == ["small", "model_context_length"]
    assert story(way(SMALL, LARGE, tiny), [fault, fault]) == [
        "small",
        "large",
        "model_context_length",
    ]


@pytest.mark.parametrize(
    "code", ["model_content_policy", "model_bad_request", "model_timeout_total"]
)
def test_what_nobody_else_could_do_better_ends_it(code: FaultCode) -> None:
    """Neither asked again nor elsewhere."""
    assert story(way(SMALL, LARGE), [Fault(code)]) == ["small", code]


@pytest.mark.parametrize("code", ["model_auth", "unknown_model", "model_rate_limited"])
def test_what_this_provider_will_not_do_another_may(code: FaultCode) -> None:
    """A wrong key, a model that is gone, no money left."""
    assert story(way(SMALL, LARGE), [Fault(code)]) == ["small", "large"]


def test_a_fallback_that_is_gone_is_passed_over() -> None:
    """The registry changes while calls run."""
    means = RescueMeans(POLICY, ProviderBreakers(POLICY.breaker), lambda: 1.0)
    rescue = Rescue(replace(SMALL, fallbacks=("gone",)), {"small": SMALL}, means, ends=100)
    assert story(rescue, [Fault("model_auth")]) == ["small", "model_auth"]


def test_an_open_breaker_sends_calls_on() -> None:
    """To the fallback at once, or nowhere with a clear word; its probe comes back."""
    policy = replace(POLICY, breaker=BreakerPolicy(calls=1, rest=10))
    breakers = ProviderBreakers(policy.breaker)
    permit = breakers.of(SMALL).permit(0)
    assert permit is not None
    breakers.of(SMALL).record(permit, "failure", 0)
    assert story(way(SMALL, LARGE, breakers=breakers), []) == ["large"]
    step = way(SMALL, breakers=breakers).next(4)
    facts: Facts = {"cause": "breaker_open", "retry_after": 6.0}
    assert step == GiveUp(Fault("model_unavailable", retryable=True, data=facts))
    assert story(way(SMALL, LARGE, breakers=breakers), [], now=10) == ["small"]


faults = st.builds(
    Fault,
    st.sampled_from(get_args(FaultCode)),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "retry_after": st.floats(0, 200) | st.integers(0, 200),
            "status": st.sampled_from([429, 500, 503]),
        },
    ),
)


@given(
    attempts=st.integers(1, 5),
    fallbacks=st.integers(0, 3),
    draws=st.floats(0, 1),
    drawn=st.data(),
)
def test_whatever_fails_it_ends(
    attempts: int, fallbacks: int, draws: float, drawn: st.DataObject
) -> None:
    """Bounded attempts, none after the limit, never two of a model without a wait between."""
    policy = RescuePolicy(attempts=attempts, breaker=BreakerPolicy(calls=3))
    models = [replace(LARGE, model_id=f"m{n}", model=f"m{n}") for n in range(fallbacks + 1)]
    breakers = ProviderBreakers(policy.breaker)
    rescue = way(*models, policy=policy, draw=draws, breakers=breakers)
    now = 0.0
    asked: list[tuple[float, str]] = []
    step: RetryStep = rescue.next(now)
    while not isinstance(step, GiveUp):
        if isinstance(step, RetryAfter):
            assert LEAST_WAIT <= step.seconds <= policy.longest_wait
            now += step.seconds
            step = rescue.next(now)
            continue
        assert now < 100
        asked.append((now, step.entry.model_id))
        now += drawn.draw(st.floats(0, 40))
        fault = drawn.draw(faults)
        result = drawn.draw(st.sampled_from(RESULTS))
        breakers.of(step.entry).record(step.permit, result, now)
        step = rescue.failed(fault, now, drawn.draw(st.sampled_from(get_args(Extent))))
    assert len(asked) <= attempts * len(models)
    for (before, one), (after, other) in pairwise(asked):
        assert one != other or after - before >= LEAST_WAIT
    order = [model_id for _, model_id in asked]
    assert order == sorted(order), "a model that was left is not asked again"
