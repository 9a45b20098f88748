"""`[tools]`: servers of tools, and refusals that say what to do."""

from __future__ import annotations

import pytest

from contract.flows.chat import CHAT
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import McpServerSettings, Settings

URL = 'url = "http://127.0.0.1:1/mcp"\n'


def read(text: str) -> Settings:
    """Parse a file called `cutover.toml`."""
    return parse_settings(text, "cutover.toml", {"chat": CHAT})


def servers(**prefixes: str) -> str:
    """Write servers with these prefixes."""
    return "\n".join(
        f'[tools.mcp.{name}]\n{URL}prefix = "{prefix}"' for name, prefix in prefixes.items()
    )


def test_servers_are_read_in_their_order() -> None:
    """Each with its name and two underscores before its tools, unless it says otherwise."""
    found = read(
        f"""
        [tools.mcp.web-search]
        {URL}
        token_env = "TOKEN"
        read_only = ["search"]
        [tools.mcp.files]
        command = ["files", "--root", "/srv"]
        env = ["HOME"]
        timeout_seconds = 5
        read_only = true
        prefix = "fs_"
        allow = ["read"]
        """
    ).tools.mcp
    assert [*found] == ["web-search", "files"]
    web, files = found.values()
    assert (web.prefix, web.read_only, web.token_env) == ("web-search__", ("search",), "TOKEN")
    assert files == McpServerSettings(
        command=("files", "--root", "/srv"),
        env=("HOME",),
        timeout_seconds=5.0,
        read_only=True,
        prefix="fs_",
        allow=("read",),
    )


def test_without_servers_there_are_none() -> None:
    """Nor is anything imported for them."""
    assert read("").tools.mcp == {}
    assert McpServerSettings(url="http://x").read_only == "hints"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tools.mpc.a]", ["tools.mpc", "did you mean 'mcp'"]),
        ("[tools.mcp.a]", ["tools.mcp.a", "one of command and url"]),
        (f'[tools.mcp.a]\n{URL}command = ["x"]', ["tools.mcp.a", "one of command and url"]),
        ('[tools.mcp.a]\ncommand = [""]', ["tools.mcp.a.command", "must begin with a program"]),
        ('[tools.mcp.a]\ncommand = "x y"', ["tools.mcp.a.command", "'x y'"]),
        (f"[tools.mcp.a]\n{URL}comand = []", ["tools.mcp.a.comand", "did you mean 'command'"]),
        (f'[tools.mcp.a]\n{URL}env = ["A"]', ["tools.mcp.a.env", "only a url has a token_env"]),
        (
            '[tools.mcp.a]\ncommand = ["x"]\ntoken_env = "A"',
            ["tools.mcp.a.token_env", "only a url has a token_env"],
        ),
        ('[tools.mcp.a]\nurl = "ftp://x"', ["tools.mcp.a.url", "http://"]),
        (f'[tools.mcp.a]\n{URL}prefix = "a.b"', ["tools.mcp.a.prefix", "letters"]),
        (f'[tools.mcp.a]\n{URL}read_only = "yes"', ["tools.mcp.a.read_only"]),
        (f"[tools.mcp.a]\n{URL}timeout_seconds = 0", ["tools.mcp.a.timeout_seconds"]),
        (f"[tools.mcp.a__b]\n{URL}", ["tools.mcp.a__b", "single '_'"]),
        (f"[tools.mcp.'a.b']\n{URL}", ["tools.mcp.a.b", "letters"]),
        (f"[tools.mcp]\n{URL}", ["tools.mcp.url", "must be a table"]),
    ],
)
def test_what_cannot_be_is_refused(text: str, words: list[str]) -> None:
    """With file, key and what is allowed."""
    with pytest.raises(ConfigRefused) as caught:
        read(text)
    assert all(word in str(caught.value) for word in ["cutover.toml: ", *words])


@pytest.mark.parametrize(
    "text",
    [
        '[tools.mcp.a]\nurl = "http://user:hush-hush@127.0.0.1/mcp"',
        f'[tools.mcp.a]\n{URL}token_env = "sk-hush"',
        '[tools.mcp.a]\ncommand = ["x"]\nenv = ["KEY=hush"]',
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(text: str) -> None:
    """Variables are named, never their values."""
    with pytest.raises(ConfigRefused) as caught:
        read(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text", [servers(a="x_", b="x_y_"), servers(a="x_y_", b="x_"), servers(a="", b="b_")]
)
def test_prefixes_under_which_names_could_meet_are_refused(text: str) -> None:
    """Which tool is meant must not depend on which server was there first."""
    with pytest.raises(ConfigRefused, match="might bear the same name"):
        read(text)


def test_names_that_begin_alike_may_stand_beside_each_other() -> None:
    """Their prefixes end in what no name holds; one server alone may have none."""
    found = read(f"[tools.mcp.git]\n{URL}[tools.mcp.git_hub]\n{URL}").tools.mcp
    assert [one.prefix for one in found.values()] == ["git__", "git_hub__"]
    assert read(servers(a="")).tools.mcp["a"].prefix == ""
