"""Deciding who serves a request: the settings in force, the QA header, the hash, the pin."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from contract.flow import value_in
from router.routing.flags import Targeting
from router.routing.qa_header import Forced, verify
from router.routing.rollout import assign

if TYPE_CHECKING:
    from contract.flow import Body, FlowSpec
    from router.config import FlowSettings, Settings
    from router.context import Counts
    from router.parts import Parts
    from router.routing.rollout import Assignment
    from router.serving.run import Incoming
    from router.stack import StackName

log = logging.getLogger(__name__)


class Decision(msgspec.Struct, frozen=True):
    """Who serves a request, and the settings that said so; `version` names them, flags included."""

    settings: Settings
    flow: FlowSettings
    version: str
    assignment: Assignment


class Assigner:
    """Decides who serves; counts the QA headers that do not count."""

    def __init__(self, parts: Parts, counts: Counts) -> None:
        self._parts = parts
        self._counts = counts

    async def decide(
        self,
        spec: FlowSpec,
        body: Body,
        qa_header: str | None,
        incoming: Incoming | None = None,
        session: str = "",
    ) -> Decision:
        """Decide for one request; waits for flags and pins kept elsewhere, briefly.

        `session` names the conversation that begins with it, if one does.
        """
        settings = self._parts.settings()
        flow, version = settings.flows[spec.name], settings.version
        key = spec.route_key(body, flow.route_key, session)
        if self._parts.flags is not None:
            who = targeting(settings, spec, body, key, incoming)
            flow, version = await self._parts.flags.settle(who, flow, version)
        found = assign(flow, settings.rollout.salt, key, self._forced(qa_header, key))
        sticky = flow.sticky == "conversation"
        conversation = spec.conversation(body, session) if sticky else None
        # Whoever is forced, or off, is not a turn like others: nothing is frozen, nothing thawed.
        if conversation is not None and found.why == "percent":
            found = await self._parts.pins.settle(
                spec.name, conversation, found, version, settings.rollout.pin_seconds
            )
        return Decision(settings, flow, version, self._remaining(found))

    def _remaining(self, assignment: Assignment) -> Assignment:
        """Replace a stack that is not part of this deployment any more by the one that is left."""
        stacks = self._parts.stacks
        if assignment.stack in stacks:
            return assignment
        return msgspec.structs.replace(assignment, stack=next(iter(stacks)), why="retired")

    def _forced(self, header: str | None, key: str) -> StackName | None:
        if header is None:
            return None
        wish = verify(header, key, self._parts.qa_key, self._parts.wall())
        if isinstance(wish, Forced):
            return wish.stack
        self._counts.qa_ignored += 1
        log.warning("QA header ignored: %s", wish.why)
        return None


def targeting(
    settings: Settings,
    spec: FlowSpec,
    body: Body,
    key: str,
    incoming: Incoming | None,
) -> Targeting:
    """Say whom flags are asked for."""
    user = attribute(settings.flags.user, body, incoming)
    tenant = attribute(settings.flags.tenant, body, incoming)
    return Targeting(spec.name, key, user, tenant)


def attribute(place: str, body: Body, incoming: Incoming | None) -> str:
    """Read `header:NAME` or `body:FIELD` of a request; "" where it is not there."""
    kind, _, name = place.partition(":")
    if kind == "body":
        value = value_in(body, name)
        return "" if value is None else str(value)
    wanted = name.encode()
    headers = incoming.headers if incoming is not None else ()
    return next((value.decode("latin-1") for key, value in headers if key == wanted), "")
