"""The configuration: good defaults, and refusals that say what to do."""

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from contract.flows.chat import CHAT, ChatOptions
from contract.operations import WriteLimits
from router.config.addresses import read_secret, resolve_address
from router.config.errors import ConfigRefused
from router.config.loader import load_settings, parse_settings
from router.config.schema import McpServerSettings
from tests.router.config.texts import LIVE, MCP_URL, MODEL, SPECS, STACK, read

ALONE = "enable_langgraph = true\nlanggraph_percent = 100\nlanggraph_fallback = false"
OUTSIDE = '[server]\nhost = "0.0.0.0"\n[gateway]\n'


def test_an_empty_file_works() -> None:
    """Everything has a default, and every known flow is there: off, everything to legacy."""
    settings = read("")
    flow = settings.flows["chat"]
    assert flow.stage == "off"
    assert flow.langgraph_fallback
    assert not flow.fallback_to_graph
    assert flow.route_key == "message_id"
    assert flow.options == ChatOptions()
    assert settings.limits.exchange_bytes == 4_194_304
    assert settings.limits.total_bytes == 268_435_456
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)


def test_a_full_file_is_read() -> None:
    """Every section reaches its value."""
    settings = read(
        """
        [rollout]
        salt = "2026-11-chat"
        [flows.chat]
        enable_langgraph = true
        langgraph_percent = 10.125
        shadow_percent = 100
        route_key = "session_id"
        force_graph = ["qa-1"]
        [flows.chat.options]
        wire = "extended"
        yield_interval = 0.25
        [shadow]
        mode = "tail"
        [captures.redact]
        patterns = {badge = "B-[0-9]{6}", email = ""}
        [stores]
        locks = "redis://127.0.0.1/0"
        conversations = "env:DATABASE"
        [providers.openai]
        base_url = "http://127.0.0.1:1/v1"
        key_env = "OPENAI_API_KEY"
        [models."gpt-4.1"]
        provider = "openai"
        fallbacks = ["small"]
        [models.small]
        provider = "openai"
        model = "gpt-4.1-mini"
        """
    )
    flow = settings.flows["chat"]
    assert flow.langgraph_percent == Decimal("10.125")
    assert flow.shadow_percent == 100
    assert flow.options == ChatOptions(wire="extended", yield_interval=0.25)
    assert settings.models["gpt-4.1"].model == "gpt-4.1"
    assert {"badge", "phone"} <= {one.name for one in settings.patterns.all}
    assert "email" not in {one.name for one in settings.patterns.all}


@pytest.mark.parametrize(
    ("text", "sticky"),
    [
        ("", "none"),
        ('route_key = "session_id"', "conversation"),
        ('route_key = "user_id"', "conversation"),
        ('route_key = "session_id"\nsticky = "none"', "none"),
        ('sticky = "conversation"', "conversation"),
    ],
)
def test_conversations_are_frozen_unless_messages_are_routed(text: str, sticky: str) -> None:
    """Or where the file says otherwise, in both directions."""
    assert read(f"[flows.chat]\n{text}").flows["chat"].sticky == sticky


def test_a_flow_without_conversations_cannot_freeze_them() -> None:
    """Asked for it is refused; left to itself it is not sticky."""
    specs = {"chat": replace(CHAT, route_keys={"message_id": "message_id", "user_id": "user_id"})}
    found = parse_settings('[flows.chat]\nroute_key = "user_id"', "cutover.toml", specs)
    assert found.flows["chat"].sticky == "none"
    with pytest.raises(ConfigRefused, match="no route key 'session_id'"):
        parse_settings('[flows.chat]\nsticky = "conversation"', "cutover.toml", specs)


def test_the_version_follows_the_meaning() -> None:
    """Order, comments and the spelling of numbers do not matter; a value does."""
    a = read('[flows.chat]\nlanggraph_percent = 10\nforce_graph = ["a", "b"]')
    b = read('# hi\n[flows.chat]\nforce_graph = ["b", "a"]\nlanggraph_percent = 10.000')
    c = read("[flows.chat]\nlanggraph_percent = 10.001")
    assert a.version == b.version
    assert a == b
    assert a.version != c.version
    assert len(a.version) == 12


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("enable_langgraph = false\nlanggraph_percent = 50\nshadow_percent = 50", "off"),
        ("enable_langgraph = true", "off"),
        ("enable_langgraph = true\nshadow_percent = 0.001", "shadow"),
        ("enable_langgraph = true\nlanggraph_percent = 0.001", "ramp"),
        ("enable_langgraph = true\nlanggraph_percent = 99.999\nshadow_percent = 5", "ramp"),
        ("enable_langgraph = true\nlanggraph_percent = 100", "full"),
        (f"{ALONE}\nshadow_percent = 1", "full"),
        (ALONE, "retired"),
    ],
)
def test_the_stage_is_derived(text: str, stage: str) -> None:
    """A stage is what the switches amount to."""
    assert read(f"[flows.chat]\n{text}").flows["chat"].stage == stage


def test_a_file_is_loaded_or_refused(tmp_path: Path) -> None:
    """What cannot be read is a refusal like any other, naming the file."""
    path = tmp_path / "cutover.toml"
    with pytest.raises(ConfigRefused, match=r"cutover\.toml: cannot be read: no such file"):
        load_settings(path, SPECS)
    path.write_bytes(b"# \xff")
    with pytest.raises(ConfigRefused, match="not UTF-8 at byte 2"):
        load_settings(path, SPECS)
    path.write_text("[flows.chat]\nlanggraph_percent = 2.5", "utf-8")
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == Decimal("2.500")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param("device", "cannot be read: a device, not a file", id="a device without end"),
        pytest.param("pipe", "cannot be read: a pipe, not a file", id="a pipe nothing writes to"),
        pytest.param("folder", "cannot be read: is a directory", id="a folder"),
        pytest.param("long", "longer than 1,048,576 bytes", id="a file over 1 MiB"),
    ],
)
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str, why: str) -> None:
    """A link to a device took all memory, and the router with it."""
    path = tmp_path / "cutover.toml"
    match kind:
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"#" * (1 + (1 << 20)))
    with pytest.raises(ConfigRefused, match=rf"cutover\.toml: {why}$"):
        load_settings(path, SPECS)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """Mounted configurations are links, and the longest one that is allowed is read."""
    path, real = tmp_path / "cutover.toml", tmp_path / "real.toml"
    real.write_text("[flows.chat]\nlanggraph_percent = 2\n".ljust(1 << 20, "#"), "utf-8")
    path.symlink_to(real)
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == 2


def test_a_byte_order_mark_is_taken_off(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "cutover.toml"
    path.write_text("[flows.chat]\nlanggraph_percent = 7\n", encoding="utf-8-sig")
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == Decimal(7)


def test_an_address_may_come_from_the_environment() -> None:
    """A store with a password in its address is named by a variable."""
    assert resolve_address("env:DB", {"DB": "postgresql://u:p@h/d"}) == "postgresql://u:p@h/d"
    assert resolve_address("sqlite:///x", {}) == "sqlite:///x"
    with pytest.raises(ConfigRefused, match="DB: not set"):
        resolve_address("env:DB", {})
    with pytest.raises(ConfigRefused, match="DB: no address") as refused:
        resolve_address("env:DB", {"DB": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_secret_comes_from_the_environment() -> None:
    """None is fine where none is named; one that is named must be there."""
    assert read_secret("", {}) == b""
    assert read_secret("QA", {"QA": "hush"}) == b"hush"
    with pytest.raises(ConfigRefused, match="QA: not set"):
        read_secret("QA", {"QA": ""})


@pytest.mark.parametrize(
    "text",
    [
        f'{OUTSIDE}enabled = true\nkey_env = "KEY"',
        f"{OUTSIDE}enabled = false",
        f"{OUTSIDE}enabled = true",
        '[gateway]\nlisten = "[::1]:8081"\nenabled = true',
        '[gateway]\nlisten = "0.0.0.0:0"\nenabled = true\nkey_env = "KEY"',
        "[gateway]\nenabled = true",
        '[server]\nhost = "localhost"\n[gateway]\nenabled = true',
        '[server]\nhost = "::1"\n[gateway]\nenabled = true',
        f"{LIVE}tokens_per_day = 1000",
        f"{LIVE}requests_per_day = 1000",
        f"[shadow]\nrequests_per_day = 1000\n{STACK}shadow_safe = true\n",
        f"[shadow]\ntokens_per_day = 1000\n{STACK}shadow_safe = true\n[gateway]\nenabled = true\n",
        f"{LIVE}cost_per_day = 0.5\n{MODEL}input_price = 1.0\noutput_price = 2.0\n",
        f'{LIVE}history = "own"\ntokens_per_day = 1000',
        f'{STACK}media_types = ["text/html"]',
        f"{STACK}resumable = true\n[gateway]\nenabled = true\n",
        '[captures]\npath = "s3://bucket/x"',
    ],
)
def test_what_needs_something_else_is_taken_with_it(text: str) -> None:
    """Each without it is refused."""
    read(text)


def test_servers_are_read_in_their_order() -> None:
    """Each with its name and two underscores before its tools, unless it says otherwise."""
    found = read(
        f"""
        [tools.mcp.web-search]
        {MCP_URL}
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


def test_names_that_begin_alike_may_stand_beside_each_other() -> None:
    """Their prefixes end in what no name holds; one server alone may have none."""
    found = read(f"[tools.mcp.git]\n{MCP_URL}[tools.mcp.git_hub]\n{MCP_URL}").tools.mcp
    assert [one.prefix for one in found.values()] == ["git__", "git_hub__"]
    assert read(f'[tools.mcp.a]\n{MCP_URL}prefix = ""').tools.mcp["a"].prefix == ""


LIMITS = """
[limits]
tool_seconds = 20
write_seconds = 30
[limits.operations]
{} = 600.0
[limits.tools]
build = 300.0
"""


@pytest.mark.parametrize("name", ["workers.run", '"workers.run"'])
def test_writes_have_limits_of_their_own(name: str) -> None:
    """A tool's leaves its call as much time to end as any other has; quotes may be forgotten."""
    limits = read(LIMITS.format(name)).limits
    assert limits.writes == WriteLimits(30.0, {"workers.run": 600.0}, {"build": 310.0})
    assert limits.writes.longest == 600.0
    assert read("").limits.writes.longest == 35.0
