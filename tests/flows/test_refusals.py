"""What a flow refuses: the same status and code on both stacks, before any frame."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contract.flows.chat import ChatRequest, ModelOverrides
from contract.flows.companion import CompanionOptions
from contract.flows.ops import OpsOptions
from contract.flows.pipeline import PipelineOptions
from contract.flows.session import lock_key as session_lock
from contract.model import ModelInfo
from contract.stores import Turn
from rules.chat import lock_key
from tests.support.companion_turns import PNG, Visit, image, turn
from tests.support.flow_runs import (
    DIRECTIONS,
    STACKS,
    Case,
    Scene,
    play,
    record,
    replay,
    same_on_both,
)
from tests.support.ops_turns import shift
from tests.support.pipeline_turns import SESSION_ID, Talk

pytestmark = pytest.mark.virtual

INFO = ModelInfo(model_id="gpt-4.1", model="m", max_output_tokens=100)
OTHER = Turn(message_id="m", role="user", content="something else")
REPLY = Turn(message_id="m", role="assistant", content="x", reply_to="n")


def chat(content: str | None = "x", **settings: Any) -> ChatRequest:
    """Return a request of the chat flow."""
    config = ModelOverrides(**settings) if settings else None
    return ChatRequest(message_id="m", content=content, model_config=config)


REFUSALS: list[tuple[Scene, str, int]] = [
    (Case(chat(None)), "unknown_message", 404),
    (Case(chat(), locked=True), "message_locked", 409),
    (Case(chat(), turns=(OTHER,)), "message_conflict", 409),
    (Case(chat(), turns=(REPLY,)), "message_conflict", 409),
    (Case(chat(None), turns=(REPLY,)), "message_conflict", 409),
    (Case(chat(model_id="no-such-model"), models=(INFO,)), "unknown_model", 422),
    (Case(chat(max_tokens=101), models=(INFO,)), "max_tokens_too_large", 422),
    (Visit(turn(), taken=session_lock("s")), "session_busy", 409),
    (Visit(image(url=PNG[:-1])), "image_not_base64", 422),
    (Visit(turn(), CompanionOptions(max_tokens=65_536)), "max_tokens_too_large", 422),
    (shift("hm", busy=True), "session_busy", 409),
    (shift("hm", options=OpsOptions(model_id="no-such-model")), "unknown_model", 422),
    (shift("hm", options=OpsOptions(max_tokens=9_999)), "max_tokens_too_large", 422),
    (Talk(busy=True), "session_busy", 409),
    (Talk(options=PipelineOptions(model_id="no-such-model"), models=(INFO,)), "unknown_model", 422),
    (Talk(options=PipelineOptions(max_tokens=101), models=(INFO,)), "max_tokens_too_large", 422),
]
each_refusal = pytest.mark.parametrize(
    ("scene", "code", "status"),
    REFUSALS,
    ids=[f"{it.spec.name}-{code}" for it, code, _ in REFUSALS],
)


@each_refusal
async def test_a_refusal_has_its_status_and_code_and_no_frame(
    stack: str, scene: Scene, code: str, status: int
) -> None:
    """The model is not called, nothing is stored, our lock is free again; another's stays."""
    before = scene.world().conversations.turns
    played = await play(stack, scene)
    assert played.frames == []
    outcome, refused_code, refusal = played.ended
    assert (outcome, refused_code) == ("refused", code)
    assert isinstance(refusal, tuple)
    assert refusal[:2] == (status, code)
    assert refusal[2]  # a sentence that may be shown
    assert played.world.count("model.stream") == 0
    if scene.spec.name == "companion":
        assert played.world.conversations.turns == before
    locks = {"chat": lock_key("m"), "pipeline": session_lock(SESSION_ID)}
    key = locks.get(scene.spec.name, session_lock("s"))
    assert await played.world.locks.acquire("again", key, 1) == (not scene.taken)


@each_refusal
async def test_both_stacks_refuse_alike(scene: Scene, code: str, status: int) -> None:
    """The other stack refuses on the tape what the first refused for real."""
    for first, second in DIRECTIONS:
        played = await same_on_both(scene, first, second)
        assert played.ended[1] == code
        assert status in played.ended[2]  # type: ignore[operator]


@pytest.mark.parametrize("most", [None, 1, 100])
async def test_a_request_within_the_limit_of_its_model_is_admitted(
    stack: str, most: int | None
) -> None:
    """Up to the limit, and without one."""
    played = await play(stack, Case(chat(max_tokens=most), models=(INFO,)))
    assert played.ended[0] == "completed"


async def test_sending_the_same_message_again_is_no_conflict(stack: str) -> None:
    """A retry finds its own message stored."""
    again = Turn(message_id="m", role="user", content="x")
    played = await play(stack, Case(chat(), turns=(again,)))
    assert played.ended[0] == "completed"


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_reply_that_an_earlier_version_answered_is_refused_on_replay(
    first: str, second: str
) -> None:
    """Its tape is read to the turn that was found; what followed from that is not called."""
    asked = Turn(message_id="m", role="user", content="x")
    case = Case(chat(None), turns=(asked,))
    served, _ = await record(STACKS[first], case)
    assert served.ended[0] == "completed"
    found = msgspec.json.encode({"turn": REPLY})
    tape = tuple(
        msgspec.structs.replace(entry, items=(msgspec.Raw(found),)) if entry.op == "find" else entry
        for entry in served.tape
    )
    again = await replay(STACKS[first], case, tape)
    other = await replay(STACKS[second], case, tape)
    for played in (again, other):
        assert (played.ended[:2], played.frames) == (("refused", "message_conflict"), [])
        assert played.hows == {"exact"}
        assert any(label.startswith("model.stream") for label in played.unplayed)
    assert again.calls == other.calls
