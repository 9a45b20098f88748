"""What a flow turns down: the same status and code on both stacks, before any frame."""

import pytest

from contract.flows.chat import ChatRequest, ModelSettings
from contract.model import ModelInfo
from contract.stores import Turn
from rules.chat import lock_key
from tests.flows.playing import Case, play, same_on_both

pytestmark = pytest.mark.virtual

INFO = ModelInfo(model_id="gpt-4.1", model="m", max_output_tokens=100)
OTHER = Turn(message_id="m", role="user", content="something else")

REFUSALS = {
    "unknown_message": (Case(ChatRequest(message_id="m")), 404),
    "message_locked": (Case(ChatRequest(message_id="m", content="x"), locked=True), 409),
    "message_conflict": (Case(ChatRequest(message_id="m", content="x"), turns=(OTHER,)), 409),
    "unknown_model": (
        Case(
            ChatRequest(message_id="m", content="x", model_config=ModelSettings(model_id="nobody")),
            models=(INFO,),
        ),
        422,
    ),
    "max_tokens_too_large": (
        Case(
            ChatRequest(message_id="m", content="x", model_config=ModelSettings(max_tokens=101)),
            models=(INFO,),
        ),
        422,
    ),
}


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refusal_has_its_status_and_code_and_no_frame(stack: str, code: str) -> None:
    """The model is not asked, and our lock is free again; another's stays."""
    case, status = REFUSALS[code]
    played = await play(stack, case)
    assert played.frames == []
    outcome, refused_code, refusal = played.ended
    assert (outcome, refused_code) == ("refused", code)
    assert isinstance(refusal, tuple)
    assert refusal[:2] == (status, code)
    assert played.world.count("model.stream") == 0
    free = await played.world.locks.acquire("again", lock_key("m"), 1)
    assert free == (not case.locked)


@pytest.mark.parametrize("code", REFUSALS)
async def test_both_stacks_refuse_alike(code: str) -> None:
    """The other stack refuses on the tape what the first refused for real."""
    case, _ = REFUSALS[code]
    await same_on_both(case, "legacy", "graph")
    await same_on_both(case, "graph", "legacy")


async def test_sending_the_same_message_again_is_no_conflict(stack: str) -> None:
    """A retry finds its own message stored."""
    again = Turn(message_id="m", role="user", content="x")
    case = Case(ChatRequest(message_id="m", content="x"), turns=(again,))
    played = await play(stack, case)
    assert played.ended[0] == "completed"
