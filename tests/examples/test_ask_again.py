"""Recording legacy again, as docs/noise.md says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from runpy import run_path

import pytest
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.cli import app
from router.config.loader import parse_settings
from router.stack import StackName
from tests.conftest import ROOT
from tests.support.deployment import Setup, deployed

SCRIPT = ROOT / "examples" / "ask_again.py"
MESSAGES = 3


async def recorded(folder: Path, stack: StackName, captures: Path | None = None) -> Path:
    """Record a deployment of one stack: asked by hand, or what is in captures; gives its own."""
    async with deployed(folder, Setup(stack=stack)) as place:
        if captures is None:
            for number in range(MESSAGES):
                answer = await place.ask({"message_id": f"m{number}", "content": "Hello"})
                assert answer.status == 200
            assert (await place.ask({"message_id": "unknown"})).status == 404
        else:
            await asyncio.to_thread(run_path(str(SCRIPT))["main"], str(captures), place.url)
        await place.lines()
    return folder / "captures"


@pytest.mark.untraced
@pytest.mark.sockets
@pytest.mark.slow
async def test_what_was_asked_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of legacy twice, in the order it was asked in: then noise can be measured."""
    for name in ("graph", "legacy", "again"):
        (tmp_path / name).mkdir()
    graph = await recorded(tmp_path / "graph", "graph")
    legacy = await recorded(tmp_path / "legacy", "legacy", graph)
    again = await recorded(tmp_path / "again", "legacy", graph)
    assert capsys.readouterr().out == f"{MESSAGES} asked again, 1 refused\n" * 2
    places = [str(place) for place in (graph, legacy, again)]
    said = CliRunner().invoke(app, ["noise", *places, "-o", str(tmp_path / "out")])
    assert said.exit_code == 3, said.output
    assert f"{MESSAGES} messages" in said.output


def test_the_configuration_the_page_shows_is_legacys_alone() -> None:
    """With stores and captures of its own."""
    page = (ROOT / "docs" / "noise.md").read_text("utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    again, default = parse_settings(text, "page", SPECS), parse_settings("", "default", SPECS)
    assert not any(flow.enable_langgraph for flow in again.flows.values())
    for name in ("conversations", "memory", "pauses", "history"):
        assert getattr(again.stores, name) != getattr(default.stores, name)
    assert again.captures.path != default.captures.path
