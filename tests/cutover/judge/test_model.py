"""A judge model on loopback: biased, incoherent and honest ones, and what is counted of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from compare.answers import DrawnAnswers
from contract.flows import SPECS
from cutover.cli.compare.judge import ask_model
from cutover.judge.judgements import read_judged
from cutover.judge.model import JudgeFailed, JudgeModel, choice_of, judged, open_judge
from effects.model import RescuePolicy, RescuingModel
from evidence.preferences import FEWEST_CHECKS, AnswerPair, Choice, JudgedPair, tally
from router.config.loader import parse_settings
from tests.support.loopback_provider import Loopback, Wire, refusing, registry_of, serving
from tests.support.misbehaving_providers import saying

pytestmark = pytest.mark.sockets

PAIRS = [AnswerPair(f"p{k}", "chat", 1, "Why?", "poor", "good") for k in range(3)]
ITSELF = [AnswerPair(f"i{k}", "chat", 1, "Why?", "poor", "poor") for k in range(FEWEST_CHECKS)]


@asynccontextmanager
async def asked(decide: Callable[[str], str]) -> AsyncIterator[tuple[JudgeModel, Loopback]]:
    """Open a judge whose model answers what `decide` makes of its prompt."""

    async def answer(wire: Wire) -> None:
        await saying(decide(loopback.requests[-1].body["messages"][-1]["content"]))(wire)

    async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
        yield JudgeModel(RescuingModel(registry, RescuePolicy(attempts=1)), "m"), loopback


async def judgements(decide: Callable[[str], str]) -> list[JudgedPair]:
    """Let a model judge legacy against itself, then the pairs."""
    async with asked(decide) as (judge, _):
        return [one async for one in judged(judge, ITSELF, PAIRS)]


def honest(prompt: str) -> str:
    """Prefer the good answer, wherever it stands."""
    a, b = "<A>\ngood" in prompt, "<B>\ngood" in prompt
    return "TIE" if a == b else "A" if a else "B"


async def test_an_honest_judge_counts() -> None:
    """It finds what is better in both orders, and nothing between equal texts."""
    [sums] = tally(await judgements(honest))
    assert (sums.candidate, sums.control, sums.position, sums.invalid) == (3, 0, 0, 0)
    assert sums.counts


async def test_a_judge_that_always_says_a_is_all_position() -> None:
    """It prefers nothing, and its check fails."""
    found = await judgements(lambda _: "A")
    assert {one.preferred for one in found} == {"position"}
    [sums] = tally(found)
    assert (sums.decided, sums.position, sums.counts) == (0, 3, False)
    assert sums.itself is not None
    assert sums.itself.position == FEWEST_CHECKS


async def test_invalid_answers_are_no_ties() -> None:
    """They are counted apart, and the check fails."""
    [sums] = tally(await judgements(lambda _: "Both are good."))
    assert (sums.ties, sums.invalid, sums.decided, sums.counts) == (0, 3, 0, False)


async def test_both_orders_are_asked_without_naming_a_stack() -> None:
    """The prompts differ in the order alone."""
    async with asked(honest) as (judge, loopback):
        assert (await judge.judge(PAIRS[0])).preferred == "candidate"
    first, second = (one.body["messages"][-1]["content"] for one in loopback.requests)
    assert first.replace("poor", "#").replace("good", "poor").replace("#", "good") == second
    assert not {"legacy", "graph"} & set(str(loopback.requests).lower().split())


async def test_a_model_that_fails_ends_the_judging() -> None:
    """With its code; nothing is made up for the pair."""
    async with serving(refusing(401)) as loopback, registry_of(loopback.entry()) as registry:
        judge = JudgeModel(RescuingModel(registry, RescuePolicy(attempts=1)), "m")
        with pytest.raises(JudgeFailed, match="'m' failed: "):
            await judge.judge(PAIRS[0])


async def test_an_unknown_model_is_named_with_the_nearest() -> None:
    """Models are those of the configuration; no fallback stands in for a judge."""
    text = """
[providers.p]
base_url = "http://127.0.0.1:9/v1"
[models.large]
provider = "p"
fallbacks = ["small"]
[models.small]
provider = "p"
"""
    settings = parse_settings(text, "cutover.toml", SPECS)
    async with open_judge(settings, {}, "larg") as judge:
        with pytest.raises(JudgeFailed, match="did you mean 'large'"):
            await judge.judge(PAIRS[0])


async def test_a_session_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What is stored is not asked again; each judgement is stored before the next one is asked."""
    answers = ["TIE"] * 2 * len(ITSELF) + ["A", "B"]

    async def answer(wire: Wire) -> None:
        await (saying(answers.pop(0)) if answers else refusing(401))(wire)

    drawn = DrawnAnswers(PAIRS, ITSELF, Counter(), len(PAIRS))
    file = tmp_path / "quality.json"
    async with serving(answer) as loopback:
        text = f"""
[providers.p]
base_url = "{loopback.base_url}"
[models.m]
provider = "p"
"""
        settings = parse_settings(text, "cutover.toml", SPECS)
        with pytest.raises(JudgeFailed):
            await ask_model("m", settings, drawn, file)
        assert [one.preferred for one in read_judged(file) if not one.itself] == ["control"]
        answers += ["B", "A"] * 2
        await ask_model("m", settings, drawn, file)
    [sums] = tally(read_judged(file))
    assert (sums.control, sums.candidate, sums.counts) == (1, 2, True)


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("A", "a"),
        (" b.\n", "b"),
        ("**Tie**", "tie"),
        ("", "invalid"),
        ("A or B", "invalid"),
        ("a tie", "invalid"),
        ("C", "invalid"),
    ],
)
def test_one_word_is_read(answer: str, choice: Choice) -> None:
    """Anything else is invalid."""
    assert choice_of(answer) == choice
