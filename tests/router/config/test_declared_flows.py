"""Flows declared in the configuration: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.flow import FlowSpec
from cutover.flows import flows_of
from router.config.errors import ConfigRefused
from router.config.watcher import SettingsWatcher
from router.http.openapi import outline_of
from tests.router.config.texts import FLOW, SPECS, STACKS, read


def test_a_built_in_dialect_is_named() -> None:
    """With its endings and its failure frames; the flow's grammar and frames go before them."""
    flow = flows_of(read(STACKS + FLOW))["support"]
    assert flow.path == "/api/support"
    assert flow.dialect.terminal == ("[DONE]",)
    assert [one.startswith(b"data: ") for one in _ended(flow)] == [True, True]
    own = FLOW + 'failure = ["[DONE]"]\ngrammar = { steps = [{ many = "*" }] }\n'
    flow = flows_of(read(STACKS + own))["support"]
    assert _ended(flow) == [b"data: [DONE]\n\n"]
    assert flow.declared
    assert flow.dialect.grammar is not None


def _ended(flow: FlowSpec) -> list[bytes]:
    return [flow.encode(event) for event in flow.failure(None, "x", None)]


def test_a_dialect_may_be_a_table() -> None:
    """As in a file of its own; rollout keys stand beside it."""
    text = FLOW.replace('"openai"', '{ framing = "ndjson", text = { "*" = "t" } }')
    settings = read(STACKS + text + "enable_langgraph = true\nlanggraph_percent = 5\n")
    assert settings.flows["support"].stage == "ramp"
    assert flows_of(settings)["support"].dialect.framing == "ndjson"


def test_what_is_declared_is_part_of_the_version() -> None:
    """Another wire is another configuration."""
    other = FLOW.replace('"openai"', '"anthropic-messages"')
    assert read(STACKS + FLOW).version != read(STACKS + other).version


@pytest.mark.parametrize(
    ("stacks", "more", "said"),
    [
        ("", "", "legacy is the built-in one, which has no declared flow"),
        ('[stacks]\nlegacy = "own_services:FLOWS"\n', "", ""),
        ('[stacks]\nlegacy = "http://old:1/"\n', "", ""),
        ('[stacks]\nlegacy = "http://old:1/"\n', "enable_langgraph = true\n", ""),
        (
            '[stacks]\nlegacy = "http://old:1/"\n',
            "enable_langgraph = true\nlanggraph_percent = 1\n",
            "graph is the built-in one",
        ),
        (
            '[stacks]\nlegacy = "http://old:1/"\n',
            "enable_langgraph = true\nshadow_percent = 1\n",
            "graph does not have this flow",
        ),
        (
            '[stacks.legacy]\nurl = "http://old:1/"\nflows = ["chat"]\n',
            "",
            "stacks.legacy.flows does not name it",
        ),
        (
            '[stacks.legacy]\nurl = "http://old:1/"\nflows = ["chta"]\n',
            "",
            "did you mean 'chat'?",
        ),
    ],
)
def test_a_serving_stack_must_have_the_flow(stacks: str, more: str, said: str) -> None:
    """A built-in stack has no declared flow; a fallback may lack it."""
    if not said:
        assert "support" in read(stacks + FLOW + more).flows
        return
    with pytest.raises(ConfigRefused, match=said.replace("?", r"\?")):
        read(stacks + FLOW + more)


def test_a_conversation_keeps_its_stack_by_default() -> None:
    """Where the first route key is the conversation's."""
    by_ticket = FLOW + 'route_keys = { session_id = "metadata.ticket" }\n'
    assert read(STACKS + by_ticket).flows["support"].sticky == "conversation"
    assert read(STACKS + FLOW).flows["support"].sticky == "none"


def test_a_running_router_refuses_other_flows(tmp_path: Path) -> None:
    """Its endpoints are made at the start; the shares of a declared flow follow the file."""
    path = tmp_path / "cutover.toml"
    path.write_text(STACKS + FLOW, "utf-8")
    watched = SettingsWatcher(path, SPECS)
    watched.adopt(STACKS + FLOW + "max_streams = 3\n")
    assert (watched.fault, watched.settings().flows["support"].max_streams) == (None, 3)
    for other in (STACKS, STACKS + FLOW.replace("openai", "ndjson")):
        watched.adopt(other)
        assert "this takes a restart" in (watched.fault or "")
        assert watched.settings().flows["support"].max_streams == 3


def test_a_built_in_flows_dialect_is_named() -> None:
    """For services that stream as that flow does, at a path of their own."""
    flow = flows_of(read(STACKS + FLOW.replace("openai", "chat")))["support"]
    assert (flow.dialect.name, flow.dialect.growth) == ("support", "cumulative")
    assert flow.dialect.terminal == ("END",)


def test_a_path_is_taken_by_a_built_in_flow_only_where_some_stack_has_it() -> None:
    """Two services that have the declared flow alone leave all other paths to it."""
    at_chat = FLOW.replace("/api/support", "/chat/sse")
    why = "already the path of flow 'chat'; flows = \\['support'\\] in \\[stacks.…\\]"
    with pytest.raises(ConfigRefused, match=why):
        read(STACKS + at_chat)
    alone = "".join(
        f'[stacks.{name}]\nurl = "http://{name}:1/"\nflows = ["support"]\n'
        for name in ("legacy", "graph")
    )
    assert flows_of(read(alone + at_chat))["support"].path == "/chat/sse"
    with pytest.raises(ConfigRefused, match="already the path"):
        read(alone.partition("[stacks.graph]")[0] + at_chat)  # graph is in this process
    other = alone.replace('["support"]', '["support", "other"]')
    with pytest.raises(ConfigRefused, match="already the path of flow 'support'"):
        read(other + at_chat + at_chat.replace("flows.support", "flows.other"))


def test_flows_stand_in_the_order_of_the_file() -> None:
    """Behind the built-in ones, in every process: it is the order of lists and pages."""
    names = ["zebra", "ant", "mole", "bee", "yak"]
    declared = "".join(
        FLOW.replace("flows.support", f"flows.{name}").replace("support", name) for name in names
    )
    assert list(read(STACKS + declared).flows) == ["chat", *names]


def test_an_example_is_a_request() -> None:
    """A JSON object; it is shown as an outline, without its values."""
    flow = flows_of(read(STACKS + FLOW + 'example = \'{"q": "secret", "n": [1]}\'\n'))["support"]
    assert flow.example == '{"q": "secret", "n": [1]}'
    assert outline_of(flow.request, flow.example) == '{"q": string, "n": array}'
    assert outline_of(flow.request) == "object"
    for wrong in ("[1]", "{", "x"):
        with pytest.raises(ConfigRefused, match="must be a JSON object in quotes"):
            read(STACKS + FLOW + f"example = '{wrong}'\n")


def test_a_pause_is_declared_beside_the_flow() -> None:
    """At a path of its own; its frames are written like those of a failure."""
    pause = '[flows.support.pause]\npath = "{}"\nframes = {}\n'
    text = STACKS + FLOW + pause.format("/api/answer", '["[DONE]", { event = "e", data = "x" }]')
    spec = flows_of(read(text))["support"]
    assert spec.pausing is not None
    assert spec.pausing.resume.path == "/api/answer"
    frames = [spec.encode(one) for one in spec.pausing.suspended(None, None)]
    assert frames == [b"data: [DONE]\n\n", b"event: e\ndata: x\n\n"]
    with pytest.raises(ConfigRefused, match="already the path of flow 'support'"):
        read(STACKS + FLOW + pause.format("/api/support", "[]"))
    with pytest.raises(ConfigRefused, match="already the path of flow 'chat'"):
        read(STACKS + FLOW + pause.format("/chat/sse", "[]"))
    with pytest.raises(ConfigRefused, match=r"pause\.frames"):
        read(STACKS + FLOW + pause.format("/api/answer", "[7]"))
