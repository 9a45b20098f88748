"""Pins and shares on a real deployment: what graph really serves, and one command that frees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run_on_one_line
from tests.support.deployment import Deployment, Setup, deployed, until
from tests.support.operations_client import ENVIRON, MORE

pytestmark = pytest.mark.sockets

CHATS = [f"chat {number}" for number in range(6)]


async def turns(place: Deployment, number: int) -> None:
    """Take a turn in every conversation."""
    for chat in CHATS:
        body = {"message_id": f"{chat} {number}", "content": "Hello", "chat_id": chat}
        assert (await place.ask(body)).status == 200
    await place.settled()


async def shares(place: Deployment) -> dict[str, Any]:
    """Return what `/readyz` reports of the flow: its stage and its shares, the window left out."""
    ready = await place.get("/readyz")
    share: dict[str, Any] = ready["shares"]["chat"]
    assert 0 < share.pop("seconds") <= 900
    assert share["stage"] == ready["stages"]["chat"]
    return share


def share(stage: str, configured: float, effective: float | None, legacy: int, graph: int) -> Any:
    """Return shares after so many turns, in conversations that are all pinned to one stack."""
    pinned = {"legacy": 6 if legacy else 0, "graph": 6 if graph else 0}
    served = {"legacy": legacy, "graph": graph}
    known = {"stage": stage, "configured": configured, "effective": effective}
    return known | {"exchanges": served, "pins": pinned}


@pytest.mark.slow
@pytest.mark.parametrize("store", ["process", "sqlite"])
async def test_shares_are_true_after_a_shadow_phase_and_after_the_release(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configured 100 %, graph serves nothing until one command releases the conversations."""
    for variable, value in ENVIRON.items():
        monkeypatch.setenv(variable, value)
    setup = Setup(
        shadow=100,
        route_key="session_id",
        pins="process" if store == "process" else f"sqlite:///{tmp_path}/pins.sqlite",
        more=MORE.replace("FOLDER", str(tmp_path)) + "[metrics]\nenabled = true\n",
        environ=ENVIRON,
    )
    async with deployed(tmp_path, setup) as place:
        await turns(place, 1)
        await place.services.router.assigner.pins.count()
        assert await shares(place) == share("shadow", 0.0, 0.0, 6, 0)

        path = place.watched.path
        place.edit(path.read_text("utf-8").replace("_percent = 0\n", "_percent = 100\n", 1))
        await turns(place, 2)
        await turns(place, 3)
        assert await shares(place) == share("ramp", 100.0, 0.0, 12, 0)
        async with place.session.get(f"{place.url}/metrics") as response:
            metrics = await response.text()
        assert 'cutover_configured_share_ratio{flow="chat"} 1.0' in metrics
        assert 'cutover_share_exchanges{flow="chat",served="legacy"} 12.0' in metrics
        assert 'cutover_share_exchanges{flow="chat",served="graph"} 0.0' in metrics
        assert 'cutover_pins{flow="chat",stack="legacy"} 6.0' in metrics

        router = () if store == "sqlite" else ("--router", place.url)
        command = ("pins", "release", "chat", "--config", path, *router)
        status, said = await asyncio.to_thread(run_on_one_line, *command)
        assert (status, said.partition(";")[0]) == (
            0,
            "chat: released 6 conversations from legacy and 0 from graph",
        )
        pins = place.services.router.assigner.pins
        await until(lambda: pins.counts == {} and pins.size == 0)
        await turns(place, 4)
        await pins.count()
        assert await shares(place) == share("full", 100.0, 100.0, 0, 6)
