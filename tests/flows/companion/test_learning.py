"""Messages teach a companion, where it is to learn: as those of a session do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contract.flows.companion import CompanionOptions
from contract.model import Chunk
from contract.stores import MemoryEntry, Turn
from router.stack import StackName
from tests.flows.companion.test_pausing import ASKED, both, paused_at, resumed
from tests.support.companion_turns import Place, Visit, turn
from tests.support.flow_runs import DIRECTIONS, Played, same_on_both

pytestmark = pytest.mark.virtual

LEARNS = CompanionOptions(extract_from=2)
FOUND = (
    Chunk(text='{"operations":[{"op":"update","id":"m1","text":"likes green tea"},'),
    Chunk(text='{"op":"add","text":"has a cat","type":"relation"}]}'),
)
KNOWN = MemoryEntry(memory_id="k", user_id="session:s", text="likes tea", session_id="old")


def said(played: Played) -> list[str]:
    """Return what was read for memories."""
    prompts = [str(call.messages[-1].content) for call in played.asked if call.json_object]
    return [prompt.partition("新的对话：\n")[2] for prompt in prompts]


def remembered(memory: object) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """Return what a companion remembers."""
    entries: tuple[MemoryEntry, ...] = memory.entries  # type: ignore[attr-defined] # the fake's
    return [(one.text, one.session_id, one.changed_in) for one in entries]


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_message_teaches_once_it_is_answered(first: str, second: str) -> None:
    """The stream is that of a companion that learns nothing; what is learnt is its owner's."""
    visit = Visit(turn("I like green tea"), found=FOUND, memories=(KNOWN,))
    quiet = await same_on_both(visit, first, second)
    assert said(quiet) == []
    taught = await same_on_both(replace(visit, options=LEARNS), first, second)
    assert taught.frames == quiet.frames
    assert said(taught) == ["user: I like green tea"]
    assert remembered(taught.world.effects.memory) == [
        ("likes green tea", "old", ("s",)),
        ("has a cat", "s", ()),
    ]


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_what_a_picture_shows_is_not_read_again(first: str, second: str) -> None:
    """Of it the user has confirmed what may be remembered."""
    earlier = (
        Turn(message_id="p", role="user", content="[图片]", chat_id="s"),
        Turn(message_id="q", role="assistant", content="secret", chat_id="s", reply_to="p"),
        Turn(message_id="t", role="user", content="nice", chat_id="s"),
        Turn(message_id="r", role="assistant", content="yes", chat_id="s", reply_to="t"),
    )
    visit = Visit(turn("hello"), options=LEARNS, turns=earlier, found=FOUND)
    played = await same_on_both(visit, first, second)
    assert said(played) == ["user: nice\nassistant: yes\nuser: hello"]


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_short_conversation_teaches_nothing(first: str, second: str) -> None:
    """Fewer messages than the flow is to read from on."""
    visit = Visit(turn(), options=CompanionOptions(extract_from=3), found=FOUND)
    played = await same_on_both(visit, first, second)
    assert said(played) == []
    assert played.world.count("memory.progress") == 0


class Learning(Place):
    """A router whose companion learns."""

    options = LEARNS


@both
async def test_a_reply_that_went_on_after_a_question_teaches(
    first: StackName, then: StackName
) -> None:
    """On whichever stack it went on; not before."""
    here = Learning(replace(ASKED, found=FOUND).world())
    paused = await paused_at(here, first)
    assert here.world.count("memory.write") == 0
    await here.answer(paused.hitl_id, "edit", colour="blue")
    rest = await resumed(here, paused, then)
    assert rest.stream is not None
    await here.settled(rest.stream)
    assert here.world.count("memory.write") == 1
    assert remembered(here.world.effects.memory) == [
        ("likes green tea", "s", ()),
        ("has a cat", "s", ()),
    ]
