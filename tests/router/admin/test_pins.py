"""Pins in the operations API: counted by flow and stack, and released on record."""

from __future__ import annotations

import pytest

from tests.support.deployment import Deployment
from tests.support.operations_client import Operator

pytestmark = pytest.mark.sockets

PINNED = {"flow": "chat", "percent": 100.0, "legacy": 2, "graph": 1}


async def pin(place: Deployment) -> None:
    """Pin two conversations to legacy and one to graph."""
    pins = place.services.router.assigner.pins
    for number in range(3):
        await pins.hold("chat", f"c{number}", "legacy" if number else "graph", "v", 60.0)


async def test_pins_are_counted(place: Deployment, alice: Operator) -> None:
    """Of flows that have some."""
    assert await alice.get("/pins") == (200, {"flows": []})
    await pin(place)
    assert await alice.get("/pins") == (200, {"flows": [PINNED]})


async def test_pins_are_released_on_record(place: Deployment, alice: Operator) -> None:
    """Those of one stack, then all; with the name of the token."""
    await pin(place)
    status, page = await alice.ask("DELETE", "/flows/chat/pins?stack=legacy")
    assert (status, page) == (200, PINNED | {"graph": 0, "moving": 2, "losing": 0})
    assert await alice.get("/pins") == (200, {"flows": [PINNED | {"legacy": 0}]})
    status, page = await alice.ask("DELETE", "/flows/chat/pins")
    assert (status, page) == (200, PINNED | {"legacy": 0, "moving": 0, "losing": 0})
    first, second = alice.audited()
    assert (first["who"], first["what"], first["flow"]) == ("alice", "pins released", "chat")
    assert (first["before"], first["after"]) == (
        {"graph": 0, "legacy": 2},
        {"graph": 0, "legacy": 0},
    )
    assert second["before"] == {"graph": 1, "legacy": 0}


@pytest.mark.parametrize(
    ("path", "code"),
    [("/flows/chta/pins", "unknown_flow"), ("/flows/chat/pins?stack=grahp", "unknown_stack")],
)
async def test_unknown_names_release_nothing(
    place: Deployment, alice: Operator, path: str, code: str
) -> None:
    """A problem with its word, nothing on record."""
    await pin(place)
    status, problem = await alice.ask("DELETE", path)
    assert (status, problem["code"]) == (404, code)
    assert await alice.get("/pins") == (200, {"flows": [PINNED]})
    assert alice.audited() == []
