"""Following: what is gone from the conversations goes from the shadows' own replies, too."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from cutover.wiring.periodic import chore
from cutover.wiring.sweeping import EVERY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.ports import Conversations
    from effects.stores.shadow_replies import ShadowReplies

log = logging.getLogger(__name__)

_SITE = "own replies"
_LATEST = 1_000
"""Turns of a conversation that are looked at: several times the replies that are kept of one."""


@asynccontextmanager
async def following(
    replies: ShadowReplies, conversations: Conversations, every: float = EVERY
) -> AsyncIterator[None]:
    """Look every so many seconds which messages are still known, as long as this is open."""
    async with chore("follow replies", partial(drop_unknown, replies, conversations), every):
        yield


async def drop_unknown(replies: ShadowReplies, conversations: Conversations) -> None:
    """Remove the replies to messages the store no longer has; one that fails is asked later."""
    for chat in replies.chats:
        try:
            turns = await conversations.history(_SITE, chat, before="", limit=_LATEST)
        except EffectFailed as failure:
            log.warning("shadows' own replies are kept for now: %s", failure.fault.code)
            return
        replies.retain(chat, {turn.message_id for turn in turns})
