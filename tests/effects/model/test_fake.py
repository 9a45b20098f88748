"""The fake's own comforts."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import EffectFailed, Fault
from contract.model import Chunk, ImagePart, ImageUrl, ModelCall, TextPart, Usage, UserMessage
from effects.model import Fail, ScriptedModel, Wait, by_last_text, in_turn, says
from tests.support.loopback_provider import CALL, whole


def asking(*parts: str) -> ModelCall:
    """Make a call whose last message says these parts, with a picture if there are several."""
    if len(parts) == 1:
        return ModelCall(model_id="m", messages=(UserMessage(parts[0]),))
    picture = ImagePart(ImageUrl("data:,"))
    texts = tuple(TextPart(part) for part in parts)
    return ModelCall(model_id="m", messages=(UserMessage((*texts, picture)),))


async def texts(model: ScriptedModel, call: ModelCall = CALL) -> str:
    """Return the whole text of an answer."""
    return "".join(chunk.text for chunk in await whole(model.stream("reply", call)))


@pytest.mark.virtual
async def test_a_plain_answer_takes_its_time() -> None:
    """Each text after its silence, then finish reason and usage."""
    loop = asyncio.get_running_loop()
    stamped = [
        (loop.time(), chunk)
        async for chunk in ScriptedModel(says("Hel", "lo", every=0.5)).stream("reply", CALL)
    ]
    assert stamped == [
        (0.5, Chunk(text="Hel")),
        (1.0, Chunk(text="lo")),
        (1.0, Chunk(finish="stop")),
        (1.0, Chunk(usage=Usage(1, 2, 3))),
    ]


async def test_answers_in_turn() -> None:
    """The last one for all calls after it."""
    model = ScriptedModel(in_turn(says("a"), says("b")))
    assert [await texts(model) for _ in range(3)] == ["a", "b", "b"]


async def test_answers_by_what_was_said() -> None:
    """The text of the last user message, without its pictures."""
    model = ScriptedModel(by_last_text({"Hello": says("a"), "What is it?": says("b")}))
    assert await texts(model, asking("Hello")) == "a"
    assert await texts(model, asking("What is", " it?")) == "b"


async def test_calls_are_remembered() -> None:
    """With their site."""
    model = ScriptedModel(says("a"))
    await texts(model)
    assert model.calls == [("reply", CALL)]
    assert (model.open, model.cancelled) == (0, 0)


async def test_a_fault_is_no_cancellation() -> None:
    """The script ended, by failing."""
    model = ScriptedModel([Wait(0), Fail(Fault("model_error"))])
    with pytest.raises(EffectFailed):
        await texts(model)
    assert (model.open, model.cancelled) == (0, 0)


async def test_without_a_list_of_models_all_are_known() -> None:
    """By their own id."""
    assert (await ScriptedModel([]).lookup("model", "any")).model == "any"
