"""Deciding who serves a request: the settings in force, the QA header, the hash, the pin."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.qa_header import Forced, verify
from router.rollout import assign

if TYPE_CHECKING:
    import msgspec

    from contract.flow import FlowSpec
    from router.flow_settings import FlowSettings
    from router.parts import Parts
    from router.rollout import Assignment
    from router.rollout import Stack as StackName
    from router.settings import Settings
    from router.ticket import Counts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """Who serves a request, and the settings that said so."""

    settings: Settings
    flow: FlowSettings
    assignment: Assignment


class Assigner:
    """Decides who serves; counts the QA headers that do not count."""

    def __init__(self, parts: Parts, counts: Counts) -> None:
        self._parts = parts
        self._counts = counts

    async def decide(self, spec: FlowSpec, body: msgspec.Struct, qa_header: str | None) -> Decision:
        """Decide for one request; waits only where its flow is sticky, and then briefly."""
        settings = self._parts.settings()
        flow = settings.flows[spec.name]
        key = spec.route_key(body, flow.route_key)
        found = assign(flow, settings.rollout.salt, key, self._forced(qa_header, key))
        # Whoever is forced, or off, is not a turn like others: nothing is frozen, nothing thawed.
        if flow.sticky == "conversation" and found.why == "percent":
            found = await self._settled(spec, body, found, settings)
        return Decision(settings, flow, found)

    async def _settled(
        self, spec: FlowSpec, body: msgspec.Struct, found: Assignment, settings: Settings
    ) -> Assignment:
        conversation = spec.conversation(body)
        if conversation is None:
            return found
        seconds = settings.rollout.pin_seconds
        pins = self._parts.pins
        return await pins.settle(spec.name, conversation, found, settings.version, seconds)

    def _forced(self, header: str | None, key: str) -> StackName | None:
        if header is None:
            return None
        wish = verify(header, key, self._parts.qa_key, self._parts.wall())
        if isinstance(wish, Forced):
            return wish.stack
        self._counts.qa_ignored += 1
        log.warning("QA header ignored: %s", wish.why)
        return None
