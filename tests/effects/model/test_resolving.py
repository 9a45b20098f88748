"""A model is shown what the request brought; the tape keeps its name."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest

from contract.errors import EffectFailed
from contract.model import (
    ImagePart,
    ImageUrl,
    ModelCall,
    SystemMessage,
    TextPart,
    UserMessage,
    field_of,
    reference,
)
from effects.model import resolving, resolving_effects
from effects.tape import TapeSession
from effects.testing import World


class Body(msgspec.Struct):
    """A request with an image."""

    by_reference: ClassVar[tuple[str, ...]] = ("image",)
    image: str = "data:image/png;base64,AAAA"
    secret: str = "s"


class Plain(msgspec.Struct):
    """A request without one."""

    image: str = "x"


def call(url: str) -> ModelCall:
    """Ask about an image."""
    parts = (TextPart("look"), ImagePart(ImageUrl(url)))
    return ModelCall(model_id="m", messages=(SystemMessage("s"), UserMessage(parts)))


async def test_the_model_gets_the_image_and_the_tape_its_name() -> None:
    """Whatever its size, the tape holds a line."""
    world = World()
    exchange = world.exchange(live=resolving_effects(world.effects, Body()))
    asked = call(reference("image", "abc"))
    async for _ in TapeSession(exchange, "r").effects().model.stream("look", asked):
        pass
    await exchange.close()
    (got,) = (one for _, one in world.model.calls)
    assert got == call(Body().image)
    assert b"request:image#sha256=abc" in exchange.tape.entries[0].args


async def test_only_what_a_request_may_name_is_shown() -> None:
    """Another field is an error, not a secret told."""
    world = World()
    model = resolving(world.effects.model, Body())
    with pytest.raises(EffectFailed, match="model_bad_request"):
        model.stream("look", call(reference("secret", "abc")))
    assert (await model.lookup("m", "m")).model_id == "m"


async def test_what_is_no_name_stays_as_it_is() -> None:
    """Addresses, data URLs, plain texts."""
    world = World()
    model = resolving(world.effects.model, Body())
    plain = ModelCall(model_id="m", messages=(UserMessage("request:image#sha256=x"),))
    for one in (call("https://example.com/a.png"), call("request:image"), plain):
        async for _ in model.stream("look", one):
            pass
        assert world.model.calls[-1][1] == one


async def test_a_request_that_names_nothing_asks_the_model_itself() -> None:
    """It costs nothing there."""
    live = World().effects
    assert resolving_effects(live, Plain()) is live
    assert resolving(live.model, {"image": "x"}) is live.model


@pytest.mark.parametrize(("url", "field"), [("request:a#sha256=", "a"), ("request:a", None)])
def test_a_reference_names_a_field(url: str, field: str | None) -> None:
    """And nothing without a digest."""
    assert field_of(url) == field
