"""docs/wrapping.md: its graph is served by its configuration, and pauses as it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.deployment import Setup, deployed
from tests.support.loopback_provider import KEY, Wire, delta, finish, serving

PAGE = (ROOT / "docs" / "wrapping.md").read_text("utf-8").partition("## A compiled LangGraph")[2]
CALLS = re.compile(r"^\$ curl -N localhost:8080(\S+) -d '(.*)'\n((?:data.*\n\n)+)", re.MULTILINE)


async def certainly(wire: Wire) -> None:
    """Answer as a model that says one word."""
    await wire.head()
    await wire.events(delta(role="assistant", content="Certainly."), finish())
    await wire.send(b"data: [DONE]\n\n")
    await wire.end()


def block(language: str, name: str) -> str:
    """Return the file of that name on the page."""
    (text,) = re.findall(rf"```{language}\n# {name}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


@pytest.mark.sockets
@pytest.mark.slow
async def test_the_graph_of_the_page_answers_pauses_and_goes_on(
    module_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page shows it, word by word; the model is asked once, and one order inserted."""
    (module_folder / "my_stack.py").write_text(block("python", "my_stack.py"), "utf-8")
    shown = re.findall(
        r"^\$ curl -N localhost:8080(\S+) -d '(.*)'\n((?:data.*\n\n)+)", PAGE, re.MULTILINE
    )
    assert len(shown) == 2
    async with serving(certainly) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        setup = Setup(chat=False, more=block("toml", "cutover.toml"))
        async with deployed(module_folder, setup) as place:
            number = ""
            for path, body, frames in shown:
                data = body.replace("5f0c…", number)
                async with place.session.post(place.url + path, data=data) as response:
                    sent = await response.text()
                number = number or re.findall(r'"id":"(\w+)"', sent)[0]
                assert sent == frames.replace("5f0c…", number)
            await place.settled()
        assert len(provider.requests) == 1
    assert sys.modules["my_stack"].ORDERS == ["tea"]
