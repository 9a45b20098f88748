"""The first configuration: what it names, what it declares, and that the loader takes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contract.flows import SPECS
from cutover.first_configuration import FirstConfiguration, flow_name, route_keys_in
from cutover.recognition import Recognised, recognise
from router.config.loader import parse_settings
from router.config.schema import RemoteStackSettings
from tests.cutover.recognition.test_proposal import FORMATS
from tests.support.recorded_answers import WORDS, answer_of
from tests.support.recorded_bodies import TOLD, Story

EXAMPLE = '{"chat":"c1","message":"It\'s \\"quoted\\""}'


def configuration(found: Recognised, **more: Any) -> FirstConfiguration:
    """Write a configuration of two services that stream alike."""
    settings: dict[str, Any] = {
        "name": "support",
        "path": "/api/chat",
        "urls": {"legacy": "http://old:9000", "graph": "http://new:9001/v2/answer"},
        "found": {"legacy": found, "graph": found},
        "route_keys": {"session_id": "chat"},
        "example": EXAMPLE,
        "shadow_safe": True,
    }
    return FirstConfiguration(**settings | more)


def recognised(body: bytes, framing: str = "sse", kind: bytes | None = None) -> Recognised:
    """Recognise a body."""
    found = recognise(answer_of(body, framing, kind=kind), SPECS)
    assert isinstance(found, Recognised)
    return found


OPENAI = recognised(TOLD["openai"](Story()))


def test_it_declares_the_flow_and_both_services() -> None:
    """At the path of a built-in flow, too: no stack has that one."""
    settings = parse_settings(configuration(OPENAI).text(), "written", SPECS)
    flow = settings.flows["support"]
    assert flow.declared is not None
    assert (flow.declared.path, flow.declared.example) == ("/api/chat", EXAMPLE)
    assert flow.declared.dialect.terminal == ("[DONE]",)
    assert (flow.stage, flow.route_key, flow.sticky) == ("shadow", "session_id", "conversation")
    legacy, graph = settings.stacks.legacy, settings.stacks.graph
    assert isinstance(legacy, RemoteStackSettings)
    assert isinstance(graph, RemoteStackSettings)
    assert (legacy.shadow_safe, graph.shadow_safe) == (False, True)
    assert legacy.flows == graph.flows == {"support"}


def test_without_the_declaration_nothing_is_mirrored() -> None:
    """The keys are there, to be read and switched on."""
    first = configuration(OPENAI, shadow_safe=False)
    settings = parse_settings(first.text(), "written", SPECS)
    assert settings.flows["support"].stage == "off"
    uncommented = first.text().replace("# shadow", "shadow").replace("= false", "= true")
    assert parse_settings(uncommented, "edited", SPECS).flows["support"].stage == "shadow"


@pytest.mark.parametrize("name", FORMATS)
def test_a_proposed_dialect_is_read_as_it_was_proposed(name: str) -> None:
    """Written as a table of its own, with what is doubted beside it."""
    one = FORMATS[name]
    found = recognised(one.told(WORDS), one.framing)
    text = configuration(found).text()
    declared = parse_settings(text, "written", SPECS).flows["support"].declared
    assert declared is not None
    assert declared.dialect == msgspec.structs.replace(found.dialect, name="support")
    assert "# ? " in text
    assert max(map(len, text.splitlines())) < 320


def test_a_type_that_is_no_streams_is_declared() -> None:
    """Otherwise the router would take each answer for a proxy's page."""
    found = recognised(TOLD["openai"](Story()), kind=b"application/stream")
    settings = parse_settings(configuration(found).text(), "written", SPECS)
    assert isinstance(settings.stacks.legacy, RemoteStackSettings)
    assert settings.stacks.legacy.media_types == {"application/stream"}


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ({"conversation_id": "c", "message": "m"}, {"session_id": "conversation_id"}),
        ({"threadId": "t", "userId": 7}, {"session_id": "threadId", "user_id": "userId"}),
        (
            {"config": {"configurable": {"thread_id": "t"}}, "user": {"id": "u", "name": "N"}},
            {"session_id": "config.configurable.thread_id", "user_id": "user.id"},
        ),
        ({"user": "u", "messages": []}, {"user_id": "user"}),
        ({"id": "chat-1", "messages": [{"id": "m"}]}, {"session_id": "id"}),
        (
            {"message_id": "m", "chat_id": "c", "metadata": {"session_id": "s"}},
            {"session_id": "metadata.session_id", "message_id": "message_id"},
        ),
        ({"session_id": None, "user_id": "", "a.b": {"user_id": "u"}, "id": True}, {}),
        ({"message": "hello"}, {}),
    ],
)
def test_ids_are_found_by_their_names(body: dict[str, Any], keys: dict[str, str]) -> None:
    """In snake and camel case, nested; the conversation's first, for it routes by default."""
    found = route_keys_in(body)
    assert list(found.items()) == list(keys.items())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/assistant", "assistant"),
        ("/api/chat", "api-chat"),
        ("/chat/sse", "chat-sse"),
        ("/v1/chat/completions", "chat-completions"),
        ("/chat", "assistant"),
        ("/help desk/ask", "ask"),
        ("/", "assistant"),
    ],
)
def test_a_flow_is_named_after_its_path(path: str, name: str) -> None:
    """Names of built-in flows are taken."""
    assert flow_name(path, SPECS) == name
