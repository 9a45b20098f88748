"""Which stack serves a request: switch, QA header, forced keys, pin, and a salted hash.

The hash is pure arithmetic, equal on every host; it also draws what is mirrored and captured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

import msgspec

from contract.flow import Body, FlowSpec, value_in
from contract.qa_header import NotForced, verify
from router.config.schema import FlowSettings, Settings
from router.context import Assignment, RouterCounts
from router.routing.flags import FlagEvaluator, Targeting
from router.routing.histories import Histories
from router.routing.pins import Pins
from router.stack import IncomingRequest, StackName, header_of

log = logging.getLogger(__name__)

BUCKETS = 100_000
_A_PERCENT = BUCKETS // 100

_SEPARATOR = "\x1f"


class Decision(msgspec.Struct, frozen=True):
    """Who serves a request, and the settings that decided; `version` names them, flags included.

    `conversation` is named where each stack stores its own history; `left` is then the stack that
    the conversation was on until this turn, None where it stays.
    """

    settings: Settings
    flow: FlowSettings
    version: str
    assignment: Assignment
    conversation: str = ""
    left: StackName | None = None


@dataclass(slots=True)
class Assigner:
    """Assigns requests to one of `stacks`; `wall` is in seconds since the epoch."""

    stacks: Sequence[StackName]
    settings: Callable[[], Settings]
    pins: Pins
    wall: Callable[[], float]
    flags: FlagEvaluator | None = None
    qa_key: bytes = b""
    counts: RouterCounts = field(default_factory=RouterCounts)
    histories: Histories = field(default_factory=Histories)

    async def decide(
        self,
        spec: FlowSpec,
        body: Body,
        qa_header: str | None,
        incoming: IncomingRequest | None = None,
        session: str = "",
    ) -> Decision:
        """Decide for one request; waits briefly for flags and pins stored elsewhere.

        `session` names the conversation that begins with it, if one does.
        """
        settings = self.settings()
        flow, version = settings.flows[spec.name], settings.version
        key = spec.route_key(body, flow.route_key, session)
        if self.flags is not None:
            targeting = targeting_of(settings, spec, body, key, incoming)
            flow, version = await self.flags.settle(targeting, flow, version)
        forced = None if qa_header is None else self._forced(qa_header, key)
        found = assign(flow, settings.rollout.salt, key, forced)
        sticky = flow.sticky == "conversation"
        conversation = spec.conversation(body, session) if sticky else None
        own = conversation is not None and flow.history == "own"
        before: StackName | None = None
        # What is forced, or switched off, neither makes a pin nor follows one, except where one
        # stack has the history: its conversations have a pin from their first turn on.
        if conversation is not None and (own or found.why == "percent"):
            held = await self.pins.hold(
                spec.name, conversation, found.stack, version, settings.rollout.pin_seconds
            )
            # Where the store does not answer, a conversation goes on where its last turn was. Its
            # pin may be another one: new after a release, or made when an answer came too late.
            last = self.histories.stack_of(spec.name, conversation) if own else None
            pinned = last if held is None else held.stack
            before = last or pinned
            if held is not None and held.new:
                if own:
                    self.histories.open(spec.name, conversation)
            elif pinned is not None and found.why == "percent":
                found = Assignment(pinned, found.bucket, "pinned")
        if found.stack == "graph" and spec.other_format is not None:
            # By a header, a flag or an older pin: its stream is none that clients can read.
            found = msgspec.structs.replace(found, stack="legacy", why="other_format")
        if found.stack not in self.stacks:  # it is not part of this deployment any more
            found = msgspec.structs.replace(found, stack=self.stacks[0], why="retired")
        if not own or conversation is None:
            return Decision(settings, flow, version, found)
        left = None if before == found.stack else before
        return Decision(settings, flow, version, found, conversation, left)

    def _forced(self, header: str, key: str) -> StackName | None:
        forced = verify(header, key, self.qa_key, self.wall())
        if isinstance(forced, NotForced):
            self.counts.qa_ignored += 1
            log.warning("QA header ignored: %s", forced.why)
            return None
        return forced


def targeting_of(
    settings: Settings, spec: FlowSpec, body: Body, key: str, incoming: IncomingRequest | None
) -> Targeting:
    """Return what flags are evaluated for."""
    user = attribute(settings.flags.user, body, incoming)
    tenant = attribute(settings.flags.tenant, body, incoming)
    return Targeting(spec.name, key, user, tenant)


def attribute(place: str, body: Body, incoming: IncomingRequest | None) -> str:
    """Read `header:NAME` or `body:FIELD` of a request; "" where it is missing."""
    kind, _, name = place.partition(":")
    if kind == "body":
        value = value_in(body, name)
        return "" if value is None else str(value)
    headers = incoming.headers if incoming is not None else ()
    return header_of(headers, name.encode()).decode("latin-1")


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
