"""Addresses of stacks in the configuration: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from cutover.flows import SPECS
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import RemoteStackSettings
from router.remote import endpoint_url


@pytest.mark.parametrize(
    ("stacks", "why"),
    [
        ('graph = "http://b"', "graph is behind an address and not declared shadow_safe"),
        ('legacy = "http://a"', "there is no tape for graph, in this process, to play"),
        ('legacy = "http://a"\ngraph = "http://b"', "graph is behind an address and not declared"),
    ],
)
def test_a_shadow_that_can_never_run_is_refused(stacks: str, why: str) -> None:
    """At start and at every edit, with the reason."""
    text = f"[flows.chat]\nenable_langgraph = true\nshadow_percent = 5\n[stacks]\n{stacks}\n"
    with pytest.raises(ConfigRefused, match=why) as refused:
        parse_settings(text, "file", SPECS)
    assert refused.value.key == "flows.chat.shadow_percent"


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ('[stacks.graph]\nurl = "http://h"\nshadowsafe = true', "did you mean 'shadow_safe'?"),
        ('[stacks.graph]\nurl = "http://h"\nidle_seconds = 0', "stacks.graph.idle_seconds = 0"),
        ('[stacks.graph]\nurl = "h"', "stacks.graph.url = 'h': allowed: http://"),
        ('[stacks]\ngraph = "http://"', "stacks.graph = 'http://': must be a URL"),
        ('[stacks]\ngraph = "http://h:65536"', "stacks.graph = 'http://h:65536': must be a URL"),
        ('[stacks]\ngraph = "http://u:secret@h/"', "a password may not stand in the file"),
        ('[stacks.graph]\nurl = "http://h"\npaths = { chatt = "/a" }', "did you mean 'chat'?"),
        ('[stacks.graph]\nurl = "http://h"\npaths = { chat = "a" }', "must be a path"),
        ("[stacks.graph]\nshadow_safe = true", "stacks.graph.url: required"),
    ],
)
def test_a_bad_address_is_refused(section: str, told: str) -> None:
    """With key, value and what is allowed."""
    with pytest.raises(ConfigRefused) as refused:
        parse_settings(section, "file", SPECS)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ({"url": "http://h"}, "http://h/chat/sse"),
        ({"url": "http://h/"}, "http://h/chat/sse"),
        ({"url": "http://h/v1/"}, "http://h/v1/chat/sse"),
        ({"url": "http://h/v1?key=1"}, "http://h/v1?key=1"),
        ({"url": "http://h/a%20b"}, "http://h/a%20b"),
        ({"url": "http://h/v1/", "paths": {"chat": "/x"}}, "http://h/v1/x"),
        ({"url": "http://h/v1?k=1", "paths": {"chat": "/x"}}, "http://h/v1/x?k=1"),
    ],
)
def test_where_a_flow_is_asked(address: dict[str, Any], url: str) -> None:
    """At the address, or below it."""
    assert str(endpoint_url(RemoteStackSettings(**address), CHAT)) == url


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ({"url": "http://h"}, "http://h/chat/image"),
        ({"url": "http://h/v1/"}, "http://h/v1/chat/image"),
        ({"url": "http://h/answer?k=1"}, "http://h/answer/image?k=1"),
        ({"url": "http://h/", "paths": {"companion": "/x"}}, "http://h/x/image"),
    ],
)
def test_where_a_further_path_of_a_flow_is_asked(address: dict[str, Any], url: str) -> None:
    """Below the flow's own, wherever that is."""
    assert str(endpoint_url(RemoteStackSettings(**address), COMPANION, "/chat/image")) == url
