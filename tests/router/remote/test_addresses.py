"""Addresses of stacks in the configuration: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from router.config.schema import RemoteStackSettings
from router.remote import endpoint_url


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
