"""What is gone from the conversations goes from the shadows' own replies."""

from __future__ import annotations

import asyncio
import logging

import pytest

from contract.errors import EffectFailed, Fault
from contract.stores import Turn
from cutover.wiring.periodic import drop_unknown, following
from effects.stores import MemoryConversations
from effects.stores.shadow_replies import ShadowReplies
from effects.stores.values import DataSubject, SubjectKind


def reply(number: int, content: str) -> Turn:
    """Make a reply."""
    return Turn(
        message_id=f"r{number}",
        role="assistant",
        content=content,
        chat_id="c",
        reply_to=f"u{number}",
    )


async def both() -> tuple[ShadowReplies, MemoryConversations]:
    """Give what was served in a conversation of two turns, and what the shadow answered."""
    replies, store = ShadowReplies(), MemoryConversations()
    for number, user in ((1, "ann"), (2, "bob")):
        asked = Turn(message_id=f"u{number}", role="user", content="?", chat_id="c", user_id=user)
        await store.put("s", asked)
        await store.put("s", reply(number, "theirs"))
        replies.put(("graph", "c"), reply(number, "mine"))
    return replies, store


@pytest.mark.parametrize(
    ("whose", "left"),
    [
        (("chat", "c"), set()),
        (("user", "ann"), {"u2"}),
        (("message", "u2"), {"u1"}),
        (("chat", "other"), {"u1", "u2"}),
    ],
)
async def test_what_is_forgotten_in_the_store_goes(
    whose: tuple[SubjectKind, str], left: set[str]
) -> None:
    """Of a chat, of a user, of a message: another process removed it, `cutover forget` say."""
    replies, store = await both()
    await store.erase(DataSubject(*whose))
    await drop_unknown(replies, store)
    assert set(replies.read(("graph", "c"))) == left


class Away(MemoryConversations):
    """A store that cannot be asked."""

    async def history(self, *_: str, **__: object) -> tuple[Turn, ...]:
        """Fail."""
        raise EffectFailed(Fault("store_failed"))


async def test_a_store_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked the next time."""
    replies, _ = await both()
    with caplog.at_level(logging.WARNING):
        await drop_unknown(replies, Away())
    assert "store_failed" in caplog.text
    assert set(replies.read(("graph", "c"))) == {"u1", "u2"}


@pytest.mark.virtual
async def test_it_is_looked_every_so_often_and_never_at_the_end() -> None:
    """As long as it is open."""
    replies, store = await both()
    async with following(replies, store, seconds=600.0):
        await store.erase(DataSubject("chat", "c"))
        await asyncio.sleep(599.0)
        assert replies.chats
        await asyncio.sleep(2.0)
        assert not replies.chats
    replies, _ = await both()
    async with following(replies, store, seconds=600.0):
        pass
    assert replies.chats
