"""What the pages let people type, offline, is answered as they show: on a real router, in turn."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.application import application
from cutover.cli import app
from cutover.server.serve import server
from loadtests.simulator import Served, running
from router.config.watcher import SettingsWatcher
from tests.docs.transcripts import Curl, Typed, blocks, curl, pattern, typed
from tests.support.companion_client import hitl_id
from tests.support.deployment import Answer, listening

ROOT = Path(__file__).parents[2]
FLOWS, README = ROOT / "docs" / "flows.md", ROOT / "README.md"
CONFIG = "cutover.toml"

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


class Shell:
    """Does what is typed, in the folder where the test is; the provider is there already."""

    def __init__(self, provider: Served, watched: SettingsWatcher | None) -> None:
        self.answers: list[Answer] = []
        self.variables: dict[str, str] = {}
        self._provider = provider
        self._watched = watched
        self._environ: dict[str, str] = {}
        self._serving = AsyncExitStack()

    async def type(self, one: Typed) -> None:
        """Do one thing, and hold what comes against what is shown."""
        match one.words:
            case ["python", "-m", "loadtests.simulator", *_]:
                pass
            case ["export", *pairs]:
                self._environ = dict(pair.split("=", 1) for pair in pairs)
            case [*_, "cutover", "serve", "&"]:
                await self.stop()
                await self._serve()
            case ["cutover", *arguments]:
                await self._edit(one, arguments)
            case ["curl", *_]:
                await self._ask(one)
            case ["hitl=…"]:
                self.variables["hitl"] = hitl_id(self.answers[-1])
            case [assigned]:
                name, _, value = assigned.partition("=")
                self.variables[name] = value
            case other:
                raise AssertionError(other)

    async def stop(self) -> None:
        """Stop the router, if there is one."""
        await self._serving.aclose()

    async def _serve(self) -> None:
        enter = self._serving.enter_async_context
        environ = {**self._environ, "OPENAI_BASE_URL": self._provider.base_url}
        built = await enter(application(self._watched, environ))
        self._url = await enter(listening(server(built.app, built.services.router, 1)))
        self._session = await enter(aiohttp.ClientSession())

    async def _edit(self, one: Typed, arguments: list[str]) -> None:
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert pattern(one.shown).fullmatch(done.output), done.output
        assert self._watched is not None
        self._watched.poll_once()  # notices
        self._watched.poll_once()  # takes what has stayed the same

    async def _ask(self, one: Typed) -> None:
        asked = curl(one, self.variables)
        url = self._url + asked.path
        async with self._session.request(
            asked.method, url, data=asked.data, headers=asked.headers
        ) as response:
            answer = Answer(response.status, response.headers, await response.read())
        self.answers.append(answer)
        came = _told(asked, answer)
        assert not one.shown or pattern(one.shown).fullmatch(came), came


def _told(asked: Curl, answer: Answer) -> str:
    """Write an answer as `curl` does."""
    if not asked.verbose:
        return answer.body.decode()
    headers = "".join(f"{name.lower()}: {value}\n" for name, value in answer.headers.items())
    return f"HTTP/1.1 {answer.status} OK\n{headers}\n{answer.body.decode()}"


async def typed_in(page: Path, heading: str, folder: Path) -> Shell:
    """Type all that stands below a heading of a page; gives the shell, whose router has stopped."""
    watched = None
    for block in blocks(page, heading, "toml"):
        (folder / CONFIG).write_text(block, "utf-8")
        watched = SettingsWatcher(folder / CONFIG, SPECS)
    async with running() as provider:
        shell = Shell(provider, watched)
        try:
            for block in blocks(page, heading, "console"):
                for one in typed(block):
                    await shell.type(one)
        finally:
            await shell.stop()
    return shell


async def test_the_page_on_flows_shows_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question put by one stack and gone on from by the other; a picture that is remembered."""
    monkeypatch.chdir(tmp_path)
    shell = await typed_in(FLOWS, "Try it", tmp_path)
    statuses = [answer.status for answer in shell.answers]
    assert statuses == [200, 200, 422, 200, 409, 200, 409, 200, 200, 200, 200]


async def test_the_first_page_leads_to_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any configuration."""
    monkeypatch.chdir(tmp_path)
    shell = await typed_in(README, "Commands", tmp_path)
    (answer,) = shell.answers
    assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]


@pytest.mark.parametrize(
    ("shown", "came", "fits"),
    [
        ("a\n…\n\nb …\n", "a\n\nb c\n\n", True),
        ("a\n…\n\nb …\n", "a\n1\n2\n\nb \n", True),
        ('{"x":"…"}\n', '{"x":"1"}', True),
        ('{"x":"…"}\n', '{"x":"1\n"}', False),
        ("a\n\nb\n", "a\n\nb\nc\n", False),
    ],
)
def test_what_is_left_out_may_be_anything_and_nothing_else_may(
    shown: str,
    came: str,
    fits: bool,
) -> None:
    """An ellipsis is a part of a line, or lines."""
    assert (pattern(shown).fullmatch(came) is not None) == fits
