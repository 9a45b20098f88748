"""A model that is shown what the request brought where a call only names it.

It stands below the recorder: the tape keeps the name. Images of megabytes would fill it, and a tape
that is full cannot pause.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.errors import EffectFailed, Fault
from contract.model import ImagePart, ImageUrl, ModelCall, TextPart, UserMessage, field_of

if TYPE_CHECKING:
    from contract.flow import Body
    from contract.model import Chunk, Message, ModelInfo
    from contract.ports import Effects, Model


def showing(model: Model, body: Body) -> Model:
    """Give the model as a request may ask it; `by_reference` of its struct is what it may name."""
    named = _named(body)
    return ResolvingModel(model, body, named) if named else model


def shown(live: Effects, body: Body) -> Effects:
    """Give the live ports as a request may ask them."""
    return dataclasses.replace(live, model=showing(live.model, body)) if _named(body) else live


def _named(body: Body) -> tuple[str, ...]:
    named: tuple[str, ...] = getattr(type(body), "by_reference", ())
    return named


@dataclass(frozen=True, slots=True)
class ResolvingModel:
    """A model for one request; `named` are the fields of its body that calls may name."""

    model: Model
    body: Body
    named: tuple[str, ...]

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Ask the model, with what the call names in its place; fault `model_bad_request`."""
        messages = tuple(map(self._message, call.messages))
        return self.model.stream(site, replace(call, messages=messages))

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell what is registered under an id."""
        return await self.model.lookup(site, model_id)

    def _message(self, message: Message) -> Message:
        if not isinstance(message, UserMessage) or isinstance(message.content, str):
            return message
        return UserMessage(tuple(map(self._part, message.content)))

    def _part(self, part: TextPart | ImagePart) -> TextPart | ImagePart:
        field = field_of(part.image_url.url) if isinstance(part, ImagePart) else None
        if field is None:
            return part
        if field not in self.named:
            raise EffectFailed(Fault("model_bad_request", data={"reason": "reference"}))
        return ImagePart(ImageUrl(getattr(self.body, field)))
