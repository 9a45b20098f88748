"""Where stacks are, and how those elsewhere reach their models."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from router.sections.section import MIB, Bytes, Seconds, Section

_URLS = ("http://", "https://")
_MediaType = Annotated[str, Meta(pattern=r"^[a-z0-9._+-]+/[a-z0-9._+-]+\Z")]
"""In lower case and without parameters, as those of answers are when they are held against it."""


class Address(Section, frozen=True):
    """`[stacks.<name>]`: a stack behind an address, its time limits and what may be done with it.

    `first_event_seconds` counts from the request, `idle_seconds` is the longest silence from then
    on (a comment is none), `total_seconds` is the whole stream. `paths` has those of flows that are
    not asked at their own. `flows` are those it has, all where none is named. `resumable`: asked
    again with the answers its model gave through the gateway, it gives the same text. `media_types`
    are what else its streams call themselves, though they are none of those.
    """

    url: str
    paths: dict[str, str] = field(default_factory=dict)
    flows: frozenset[str] = frozenset()
    shadow_safe: bool = False
    resumable: bool = False
    media_types: frozenset[_MediaType] = frozenset()
    connect_seconds: Seconds = 2.0
    first_event_seconds: Seconds = 30.0
    idle_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0

    def serves(self, flow: str) -> bool:
        """Whether it has a flow."""
        return not self.flows or flow in self.flows


class Stacks(Section, frozen=True):
    """`[stacks]`: where a stack's flows are: `package:NAME` or an address; "" is the built-in."""

    legacy: str | Address = ""
    graph: str | Address = ""

    def place(self, name: Literal["legacy", "graph"]) -> str | Address:
        """Give where a stack is, an address as such also where nothing but a URL is said."""
        said: str | Address = getattr(self, name)
        if isinstance(said, str) and said.startswith(_URLS):
            return Address(url=said)
        return said


class Gateway(Section, frozen=True):
    """`[gateway]`: models for stacks elsewhere, as OpenAI's API (docs/gateway.md).

    `key_env` names the key callers must show; it is required where others can reach the router.
    """

    enabled: bool = False
    key_env: str = ""
    max_body_bytes: Bytes = 16 * MIB
