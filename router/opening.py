"""Opening an exchange: its place, its tape, its live ports, and the plan of who serves it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from contract.flow import value_in
from effects.model import resolving_effects
from effects.tape import Exchange, PauseOrigin, Tape
from router.capture.records import request_record
from router.context import ExchangeContext
from router.problems import Problem
from router.resume.pauses import suits
from router.serving.stream import Plan, Serving

if TYPE_CHECKING:
    from contract.flow import FlowSpec, Request
    from effects.tape import Budget, PausingHuman
    from router.config import FlowSettings
    from router.parts import Parts
    from router.resume.pauses import Resumed
    from router.routing.admission import Admission, Admitted
    from router.routing.assignment import Decision
    from router.routing.rollout import Assignment
    from router.serving.run import Incoming
    from router.shadow.idle_gate import IdleGate
    from router.stack import Stack


class IncomingExchange(msgspec.Struct, frozen=True):
    """What has come: a request, the id of its exchange, and the pause it goes on from, if any."""

    spec: FlowSpec
    request: Request[Any, Any]
    exchange: str
    incoming: Incoming | None = None
    resumed: Resumed | None = None


class Opener:
    """Opens exchanges for what was decided."""

    def __init__(
        self, parts: Parts, admission: Admission, budget: Budget, courtesy: IdleGate
    ) -> None:
        self._parts = parts
        self._admission = admission
        self._budget = budget
        self._courtesy = courtesy

    def open(self, arrival: IncomingExchange, decided: Decision) -> ExchangeContext:
        """Give a request its place and its exchange; raises `Problem` 503."""
        admitted = self._admit(arrival, decided.flow, decided.assignment)
        try:
            human, exchange = self._exchange(arrival, decided)
        except BaseException:
            admitted.over(None)
            raise
        return ExchangeContext(
            exchange=arrival.exchange,
            spec=arrival.spec,
            serving=Serving(self._plan(arrival, decided, admitted), exchange),
            admitted=admitted,
            config=decided.version,
            began=int(self._parts.wall() * 1_000_000),
            human=human,
            resumed=arrival.resumed,
        )

    def _plan(self, arrival: IncomingExchange, decided: Decision, admitted: Admitted) -> Plan:
        limits, resumed = decided.settings.limits, arrival.resumed
        return Plan(
            spec=arrival.spec,
            request=arrival.request,
            assignment=decided.assignment,
            assigned=self._parts.stacks[decided.assignment.stack],
            fallback=admitted.choice.fallback,
            stall_seconds=limits.stall_seconds,
            unsent_bytes=limits.unsent_bytes,
            incoming=arrival.incoming,
            instead=admitted.choice.instead,
            exchange=arrival.exchange,
            answer=resumed.answer if resumed else None,
        )

    def _admit(
        self, arrival: IncomingExchange, flow: FlowSettings, assignment: Assignment
    ) -> Admitted:
        spec, assigned = arrival.spec, self._parts.stacks[assignment.stack]
        if not assigned.serves(spec):
            raise Problem(503, "not_served", f"{assigned.name} does not have this service")
        if not suits(assigned, arrival.resumed):
            raise Problem(503, "not_served", f"{assigned.name} cannot go on from what waits here")
        stand_in = self._fallback(flow, assignment)
        has_it = stand_in is not None and stand_in.serves(spec) and suits(stand_in, arrival.resumed)
        return self._admission.admit(spec.name, assigned, stand_in if has_it else None)

    def _fallback(self, flow: FlowSettings, assignment: Assignment) -> Stack | None:
        if assignment.stack == "graph":
            return self._parts.stacks.get("legacy") if flow.langgraph_fallback else None
        # The switch goes before everything: with it off, nothing reaches the graph stack.
        to_graph = flow.enable_langgraph and flow.fallback_to_graph
        return self._parts.stacks.get("graph") if to_graph else None

    def _exchange(
        self, arrival: IncomingExchange, decided: Decision
    ) -> tuple[PausingHuman | None, Exchange]:
        limits, resumed = decided.settings.limits, arrival.resumed
        tape = resumed.tape if resumed else Tape(limit=limits.exchange_bytes)
        tape.usage.charge(self._budget)  # not before: whoever is turned away frees nothing
        live = resolving_effects(self._parts.live(arrival.request.body), arrival.request.body)
        human = self._human(arrival, decided, tape)
        exchange = Exchange(
            replace(live, human=human) if human else live,
            tape,
            exchange_id=arrival.exchange,
            write_seconds=limits.write_seconds,
            may_write=resumed.claim.covers if resumed else None,
            monotonic=self._courtesy.clock,
            after=tape.last_stamp if resumed else 0,
        )
        return human, exchange

    def _human(
        self, arrival: IncomingExchange, decided: Decision, tape: Tape
    ) -> PausingHuman | None:
        pausing, spec = self._parts.pausing, arrival.spec
        if pausing is None or spec.continue_endpoint is None:
            return None
        asked = arrival.request
        asking = PauseOrigin(
            exchange=arrival.exchange,
            flow=spec.name,
            stack=decided.assignment.stack,
            request=request_record(asked),
            user_id=value_in(asked.body, "user_id"),
        )
        return pausing.human(asking, tape)
