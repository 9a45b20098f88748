"""Servers of tools a configuration names: opened with a deployment, examined by the doctor."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from mcp.server import MCPServer

from contract.errors import MissingExtra
from contract.flows import SPECS
from cutover.doctor import PartCheck, examine
from cutover.server.logging import log_formatter
from cutover.wiring.composition import open_services
from cutover.wiring.tools import configured_tools, refuse_unknown_tools, tool_server
from effects.model import Secret
from effects.tools import ToolModuleRefused
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import Settings
from tests.support.asgi import served
from tests.support.deployment import Setup, deployed, until
from tests.support.mcp_tools_server import tools_server

if TYPE_CHECKING:
    from router.stack import StackName

OWN_TOOL = """
from effects.tools import function_tool

@function_tool
def no_such_tool() -> str:
    '''Do what the simulated provider asks for.'''
    return "done"
"""
ENVIRON = {"TOKEN": "open-sesame", "GIVEN": "a given word"}


def read(text: str) -> Settings:
    """Parse a configuration whose stores are in memory."""
    stores = '[stores]\nconversations = "memory://"\nmemory = "memory://"\npauses = "memory://"\n'
    return parse_settings(stores + text, "cutover.toml", SPECS)


def test_a_section_becomes_a_server() -> None:
    """Variables are looked up, and shown by nothing."""
    settings = read(
        '[tools.mcp.a]\nurl = "http://127.0.0.1:1/mcp"\ntoken_env = "TOKEN"\nread_only = ["x"]\n'
        '[tools.mcp.b]\ncommand = ["b"]\nenv = ["GIVEN"]\nread_only = false\n'
    )
    a, b = (tool_server(name, one, ENVIRON, {}) for name, one in settings.tools.mcp.items())
    assert (a.prefix, a.token, a.read_only, a.allow) == (
        "a__",
        Secret("open-sesame"),
        frozenset(["x"]),
        None,
    )
    assert (b.variables, b.read_only) == ({"GIVEN": "a given word"}, False)
    assert "sesame" not in repr(a)
    assert "given" not in repr(b)
    said = logging.LogRecord("a", logging.INFO, "", 1, "open-sesame, a given word", (), None)
    assert log_formatter(settings, ENVIRON).format(said).endswith(" a [secret], [secret]")


def test_a_variable_that_is_not_set_is_refused() -> None:
    """Before anything is connected."""
    settings = read('[tools.mcp.a]\ncommand = ["b"]\nenv = ["NOT_SET_HERE"]\n')
    with pytest.raises(ConfigRefused, match="NOT_SET_HERE"):
        configured_tools(settings, {})


async def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it; without servers it is not needed."""
    for name in [name for name in sys.modules if name.startswith("effects.tools.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    settings = read('[tools.mcp.a]\ncommand = ["b"]\n')
    assert configured_tools(read(""), {}).servers == []
    with pytest.raises(MissingExtra, match="'mcp'"):
        configured_tools(settings, {})
    (found,) = [one for one in await examine(settings, {}) if one.part == "tools.mcp.a"]
    assert found.detail.endswith("pip install 'cutover[mcp]'")


def of_tools(found: list[PartCheck]) -> list[PartCheck]:
    """Return what was found of servers of tools."""
    return [one for one in found if one.part.startswith("tools.")]


@pytest.mark.sockets
async def test_the_doctor_tells_what_a_server_offers() -> None:
    """What is read-only and what is not, or why there is nothing; never a secret."""
    server = tools_server()
    app = server.streamable_http_app()
    async with server.session_manager.run(), served(app) as url:
        settings = read(
            f"""
            [tools.mcp.web]
            url = "{url}/mcp?key=hush"
            token_env = "TOKEN"
            allow = ["echo", "write", "told"]
            [tools.mcp.odd]
            url = "{url}/mcp"
            allow = ["eco"]
            [tools.mcp.away]
            url = "http://127.0.0.1:1/mcp"
            [tools.mcp.none]
            command = ["no-such-program-here", "--key=hush"]
            """
        )
        found = of_tools(await examine(settings, ENVIRON))
    assert found == [
        PartCheck(
            "tools.mcp.web",
            ok=True,
            detail=f"{url}/mcp: 3 tools; read-only web__echo, web__told; not read-only web__write",
        ),
        PartCheck(
            "tools.mcp.odd",
            ok=False,
            detail=f"{url}/mcp: 0 tools; read-only none; not read-only none; "
            "allow names 'eco', which it does not have",
        ),
        PartCheck(
            "tools.mcp.away",
            ok=False,
            detail="http://127.0.0.1:1/mcp: connection refused",
        ),
        PartCheck("tools.mcp.none", ok=False, detail="no-such-program-here: no such command"),
    ]


@pytest.mark.sockets
async def test_two_tools_of_one_name_are_found_before_they_meet(module_folder: Path) -> None:
    """A server's tool is not offered where a built-in one or one of a team's own has the name."""
    own_tool = OWN_TOOL.replace("no_such_tool", "echo")
    (module_folder / "own_tools.py").write_text(own_tool, "utf-8")
    server = tools_server()
    app = server.streamable_http_app()
    async with server.session_manager.run(), served(app) as url:
        settings = read(
            '[tools.python]\nmodules = ["own_tools"]\n'
            f'[tools.mcp.web]\nurl = "{url}/mcp"\nprefix = ""\nallow = ["echo", "write"]\n'
        )
        own, web = of_tools(await examine(settings, ENVIRON))
    assert own.ok
    assert not web.ok
    assert web.detail.endswith(
        "not read-only write; 'echo' is not offered: 'echo' is the name of another tool "
        "(own_tools.echo); set another prefix, or deny it"
    )


def test_own_tools_that_are_no_tools_are_found() -> None:
    """Neither does the doctor fail, nor does a router start."""
    settings = read('[tools.python]\nmodules = ["no_such_module"]\n')
    (found,) = of_tools(asyncio.run(examine(settings, {})))
    why = "tools of 'no_such_module': there is no module 'no_such_module' in the current folder"
    assert (found.part, found.ok) == ("tools.python", False)
    assert found.detail.startswith(why)

    async def start() -> None:
        async with open_services(lambda: settings, {}):
            pass

    with pytest.raises(ToolModuleRefused, match=why):
        asyncio.run(start())


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_deployment_calls_a_team_s_own_tool(module_folder: Path, stack: StackName) -> None:
    """A function of a module: offered to the model, called for it, and on the tape."""
    (module_folder / "own_tools.py").write_text(OWN_TOOL, "utf-8")
    more = '[tools.python]\nmodules = ["own_tools"]\n'
    async with deployed(module_folder, Setup(stack=stack, more=more)) as place:
        answer = await place.ask({"message_id": "m", "content": "no such tool"})
        assert answer.steps[-2:] == ["SUCCESS", "END"]
        run = await place.run()
    calls = [entry for entry in run.tape or () if (entry.port, entry.op) == ("tools", "run")]
    assert calls
    assert {msgspec.json.decode(entry.items[0])["content"] for entry in calls} == {"done"}


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_deployment_calls_a_server_s_tools(tmp_path: Path, stack: StackName) -> None:
    """Offered to the model, called for it, and on the tape."""
    server = MCPServer("near", log_level="CRITICAL")
    called: list[str] = []

    @server.tool()
    async def no_such_tool() -> str:
        """Do what the simulated provider asks for."""
        called.append("once")
        return "done"

    app = server.streamable_http_app()
    async with server.session_manager.run(), served(app) as url:
        more = f'[tools.mcp.near]\nurl = "{url}/mcp"\nprefix = ""\n'
        async with deployed(tmp_path, Setup(stack=stack, more=more)) as place:
            await until(lambda: not place.services.live.tools.read_only("no_such_tool"))
            answer = await place.ask({"message_id": "m", "content": "no such tool"})
            assert answer.steps[-2:] == ["SUCCESS", "END"]
            run = await place.run()
    results = [item for entry in run.tape or () if entry.op == "run" for item in entry.items]
    assert [msgspec.json.decode(one)["content"] for one in results] == ["done"] * len(called)
    assert called


LIMITED = """
[tools.mcp.files]
url = "http://127.0.0.1:1/mcp"
[limits.tools]
"""


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("calculate", ""),
        ("build", ""),
        ("files__read", ""),
        ("calcluate", "limits.tools = 'calcluate': unknown tool; did you mean 'calculate'?"),
        ("read", "limits.tools = 'read': unknown tool; known: build, calculate"),
    ],
)
def test_a_limit_is_for_a_tool_that_is_known_or_may_be_a_servers(name: str, refused: str) -> None:
    """Servers may be away: their tools are known by their prefix."""
    taken = {"calculate": "built in", "build": "app.tools"}
    settings = read(f"{LIMITED}{name} = 60.0")
    with pytest.raises(ConfigRefused, match=re.escape(refused)) if refused else nullcontext():
        refuse_unknown_tools(settings, taken)


def test_the_doctor_lists_limits_of_tools_and_finds_unknown_ones() -> None:
    """Before a router that would not start is started."""
    for name, ok, detail in (("calculate", True, "calculate 60 s"), ("x", False, "unknown tool")):
        checks = asyncio.run(examine(read(f"[limits.tools]\n{name} = 60.0"), {}))
        (found,) = (one for one in checks if one.part == "limits.tools")
        assert (found.ok, detail in found.detail) == (ok, True)
