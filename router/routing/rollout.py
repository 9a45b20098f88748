"""Which stack serves a key: pure arithmetic over salted hashes, equal on every host."""

from __future__ import annotations

from decimal import Decimal
from hashlib import blake2b

from router.config.schema import FlowSettings
from router.context import Assignment
from router.stack import StackName

BUCKETS = 100_000
_A_PERCENT = BUCKETS // 100

_SEPARATOR = "\x1f"


def bucket(salt: str, key: str) -> int:
    """Return the bucket of a key: 0 to 99 999.

    The first 8 bytes of the 64-byte BLAKE2b of `salt 0x1f key` in UTF-8, big-endian, times
    100 000, shifted right by 64. Test vectors: tests/router/routing/vectors/rollout.json.
    """
    digest = blake2b(f"{salt}{_SEPARATOR}{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * BUCKETS >> 64


def assign(flow: FlowSettings, salt: str, route_key: str, forced: StackName | None) -> Assignment:
    """Return the assignment of a request; `forced` is what a valid QA header asks for.

    The switch goes before everything: with it off, nothing reaches the graph stack.
    """
    number = bucket(salt, route_key)
    if not flow.enable_langgraph:
        return Assignment("legacy", number, "disabled")
    if forced is not None:
        return Assignment(forced, number, "forced_header")
    if route_key in flow.force_graph:
        return Assignment("graph", number, "force_list")
    if route_key in flow.force_legacy:
        return Assignment("legacy", number, "force_list")
    share = flow.langgraph_percent * _A_PERCENT
    return Assignment("graph" if number < share else "legacy", number, "percent")


def shadowed(flow: FlowSettings, salt: str, key: str) -> bool:
    """Whether a request is mirrored to the stack that does not serve.

    `key` is the exchange id, or the route key where whole conversations are wanted. The salt is
    the rollout's with `/shadow` appended, so that mirroring is independent of splitting.
    """
    share = flow.shadow_percent * _A_PERCENT if flow.enable_langgraph else 0
    return share > 0 and bucket(f"{salt}/shadow", key) < share


def captured(percent: Decimal, salt: str, exchange: str) -> bool:
    """Whether an exchange is captured; `/capture` is appended to the salt."""
    share = percent * _A_PERCENT
    return share >= BUCKETS or bucket(f"{salt}/capture", exchange) < share
