"""Assigning a request to a stack: the settings in force, the QA header, the hash, the pin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from contract.flow import Body, FlowSpec, value_in
from router.config.schema import FlowSettings, Settings
from router.context import Assignment, RouterCounts
from router.routing.flags import Flagged, Targeting
from router.routing.pins import Pins
from router.routing.qa_header import NotForced, verify
from router.routing.rollout import assign
from router.stack import IncomingRequest, StackName

log = logging.getLogger(__name__)


class Decision(msgspec.Struct, frozen=True):
    """Who serves a request, and the settings that decided; `version` names them, flags included."""

    settings: Settings
    flow: FlowSettings
    version: str
    assignment: Assignment


@dataclass(slots=True)
class Assigner:
    """Assigns requests to one of `stacks`; `wall` is in seconds since the epoch."""

    stacks: Sequence[StackName]
    settings: Callable[[], Settings]
    pins: Pins
    wall: Callable[[], float]
    flags: Flagged | None = None
    qa_key: bytes = b""
    counts: RouterCounts = field(default_factory=RouterCounts)

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
        # What is forced, or switched off, neither makes a pin nor follows one.
        if conversation is not None and found.why == "percent":
            found = await self.pins.settle(
                spec.name, conversation, found, version, settings.rollout.pin_seconds
            )
        if found.stack not in self.stacks:  # it is not part of this deployment any more
            found = msgspec.structs.replace(found, stack=self.stacks[0], why="retired")
        return Decision(settings, flow, version, found)

    def _forced(self, header: str, key: str) -> StackName | None:
        wish = verify(header, key, self.qa_key, self.wall())
        if isinstance(wish, NotForced):
            self.counts.qa_ignored += 1
            log.warning("QA header ignored: %s", wish.why)
            return None
        return wish


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
    wanted = name.encode()
    headers = incoming.headers if incoming is not None else ()
    return next((value.decode("latin-1") for key, value in headers if key == wanted), "")
