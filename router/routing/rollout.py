"""Who serves whom: pure arithmetic over salted hashes, equal on every host and in every version."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec

from router.config import FlowSettings
from router.stack import StackName

Why = Literal["disabled", "forced_header", "force_list", "pinned", "percent", "retired"]

BUCKETS = 100_000

_SEPARATOR = "\x1f"
_SHADOW = "/shadow"
_CAPTURE = "/capture"


class Assignment(msgspec.Struct, frozen=True):
    """The stack a request is assigned to, its bucket (0 to 99 999), and what decided."""

    stack: StackName
    bucket: int
    why: Why


def bucket(salt: str, key: str) -> int:
    """Give the bucket of a key: 0 to 99 999.

    The first 8 bytes of the 64-byte BLAKE2b of `salt 0x1f key` in UTF-8, big-endian, times
    100 000, shifted right by 64. Test vectors: tests/router/routing/vectors/rollout.json.
    """
    digest = blake2b(f"{salt}{_SEPARATOR}{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * BUCKETS >> 64


def assign(flow: FlowSettings, salt: str, route_key: str, forced: StackName | None) -> Assignment:
    """Say which stack a request is assigned to; `forced` is what a valid QA header asks for.

    The switch goes before everything: with it off, nothing and nobody reaches the graph stack.
    """
    place = bucket(salt, route_key)
    if not flow.enable_langgraph:
        return Assignment("legacy", place, "disabled")
    if forced is not None:
        return Assignment(forced, place, "forced_header")
    if route_key in flow.force_graph:
        return Assignment("graph", place, "force_list")
    if route_key in flow.force_legacy:
        return Assignment("legacy", place, "force_list")
    return Assignment("graph" if place < flow.graph_thousandths else "legacy", place, "percent")


def shadowed(flow: FlowSettings, salt: str, key: str) -> bool:
    """Whether a request is mirrored to the stack that does not serve.

    `key` is the exchange id, or the route key where whole conversations are wanted. The salt is
    the rollout's with `/shadow` appended, so that mirroring is independent of splitting.
    """
    return flow.enable_langgraph and _below(flow.shadow_thousandths, salt + _SHADOW, key)


def captured(thousandths: int, salt: str, exchange: str) -> bool:
    """Whether an exchange is written down; `/capture` is appended to the salt."""
    return _below(thousandths, salt + _CAPTURE, exchange)


def _below(thousandths: int, salt: str, key: str) -> bool:
    if thousandths <= 0 or thousandths >= BUCKETS:
        return thousandths > 0  # none or all: nobody's bucket has to be known
    return bucket(salt, key) < thousandths
