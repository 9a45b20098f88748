"""What flows between the nodes of a chat, and through what they reach the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import msgspec

from contract.flow import Request
from contract.flows.chat import ChatOptions, ChatRequest
from contract.ports import Effects
from contract.stores import Turn
from graph_impl import draft as drafts
from graph_impl.draft import Draft
from graph_impl.engine import Sink
from graph_impl.rounds import Plain
from rules import chat as rules


class ChatState(TypedDict, total=False):
    """What flows between the nodes: plain values only."""

    messages: list[Plain]
    tools: list[Plain]
    draft: Plain


@dataclass(frozen=True, slots=True)
class ChatContext:
    """What one run reaches the world and the client through; never part of the state."""

    request: Request[ChatRequest, ChatOptions]
    model: rules.ChatModel
    turn: Turn
    effects: Effects
    sink: Sink

    async def send(self, sent: drafts.Sent) -> Draft:
        """Send the frames of a step; gives the draft after it."""
        draft, frames = sent
        for frame in frames:
            await self.sink.send(frame)
        return draft


def draft_of(state: ChatState) -> Draft:
    """Give the reply in the making."""
    return msgspec.convert(state["draft"], Draft)
