"""Services behind addresses in a replay: what they are sent, and which turns they have."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from contract.flow import FlowSpec
from contract.model import GATEWAY_SITE
from contract.operations import EXTERNAL_READ
from contract.records import Outcome
from cutover.probe import incoming_of
from cutover.replay.journal import ReplayMisused
from cutover.replay.parts import Recording
from cutover.replay.sides import Side
from effects.tape import TapeSession
from router.config.schema import Settings
from router.context import TRACE_HEADER, Traces
from router.remote import RemoteStack
from router.routing.histories import STORING
from router.serving.run import Run, RunRequest
from router.stack import Headers, Powers, StackName

SERVICE_EXCHANGES: Final = 16
"""Exchanges in a part that services replay: what an interruption loses at most."""
NO_TURN: Final = "an earlier turn of its conversation was not replayed"
INTERRUPTED: Final = "interrupted: the service may have this turn of its conversation already"
_PAUSED: Final = "it waits for a human, or goes on from that: no service behind an address can"
_MODEL_ALONE: Final = (
    "no call of it is on the tape: the services call their model themselves; with base_url at the "
    "gateway it will be (gateway.md)"
)
_IN_PROCESS: Final = "its tape is of a stack in the router's process: no service makes such calls"


class GatewayOff(ReplayMisused):
    """Services are to be replayed, and nothing would answer their calls."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"[stacks] {name} is an address: its calls are answered from the tape by the gateway, "
            "which is off ([gateway] enabled = true, and base_url of its OpenAI client there)"
        )


class NotShadowSafe(ReplayMisused):
    """A service has not promised to do nothing on a request that is no user's."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"[stacks] {name} is an address and not declared shadow_safe: a replay sends requests "
            f"again, with x-cutover-role: shadow (stacks.{name}.shadow_safe = true)"
        )


class HeadersUnsent(ReplayMisused):
    """Headers are given, and the stack runs in this process: nothing is sent to it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"--header is for a service behind an address: {name} is none")


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """Configuration and environment of a replay that calls services.

    `headers` are sent with each request beside its body: captures have none.
    """

    settings: Settings
    environ: Mapping[str, str]
    headers: Headers = ()

    @property
    def at_once(self) -> int:
        """How many exchanges are replayed concurrently."""
        return min(self.settings.shadow.streams, SERVICE_EXCHANGES)


def refuse_misuse(plan: ServicePlan, requested: Side) -> None:
    """Raise `ReplayMisused` where a service must not be replayed as it is configured."""
    if not plan.settings.gateway.enabled:
        raise GatewayOff(requested.name)
    if requested.address is not None and not requested.address.shadow_safe:
        raise NotShadowSafe(requested.name)


class ReplayedExchanges:
    """The exchanges that are being replayed, as the gateway finds them: one run each."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Callable[[], Settings] = lambda: settings
        self.traces = Traces()
        self._outside = 0
        self._runs: dict[str, Run] = {}

    def runs(self, exchange: str, /) -> Sequence[Run] | None:
        """Return the run of an open exchange; None where it is unknown."""
        run = self._runs.get(exchange)
        return None if run is None else (run,)

    def open(self, run: Run, headers: Headers) -> None:
        """Let a run's calls be found, by the id of its exchange or by its trace."""
        self._runs[run.request.exchange] = run
        self.traces.note(run.request.exchange, headers)

    def close(self, exchange: str) -> None:
        """Refuse what is called for an exchange from now on; idempotent."""
        run = self._runs.pop(exchange, None)
        if run is not None:
            run.session.fence()
            self.traces.forget(exchange)

    def count_outside(self) -> None:
        """Count a call that names no exchange."""
        self._outside += 1

    def take_outside(self) -> int:
        """Return how many calls named none of them since the last call of this."""
        counted, self._outside = self._outside, 0
        return counted


class ReplayedService:
    """A service as a replay calls it: as a shadow, with the gateway before its model and tools."""

    def __init__(self, stack: RemoteStack, exchanges: ReplayedExchanges, headers: Headers) -> None:
        self.name: StackName = stack.name
        self.fingerprint = stack.fingerprint
        self._stack = stack
        self._exchanges = exchanges
        self._headers = headers

    @property
    def powers(self) -> Powers:
        """What its configuration declares."""
        return self._stack.powers

    def serves(self, flow: FlowSpec) -> bool:
        """Whether it has a flow."""
        return self._stack.serves(flow)

    def new_run(self, request: RunRequest, session: TapeSession, *, strict: bool = True) -> Run:
        """Make a run, whose calls are answered until `close`."""
        trace = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01".encode()
        body = msgspec.json.encode(request.request.body)
        incoming = incoming_of(body, (*self._headers, (TRACE_HEADER, trace)))
        request = msgspec.structs.replace(
            request,
            spec=request.spec.sent_by(self.name),
            role="shadow",
            incoming=incoming,
        )
        run = self._stack.new_run(request, session, strict=strict)
        self._exchanges.open(run, incoming.headers)
        return run

    def close(self, exchange: str) -> None:
        """Refuse what it calls for an exchange from now on."""
        self._exchanges.close(exchange)


def why_not_called(recording: Recording) -> str:
    """Return why no service can be replayed on a recording; "" where one can."""
    if recording.serving.resumes or recording.last.outcome == "paused":
        return _PAUSED
    entries = recording.tape.entries
    passed = any(
        one.site == GATEWAY_SITE or one.operation.port == EXTERNAL_READ.port for one in entries
    )
    if passed or (not entries and recording.last.outcome == "refused"):
        return ""
    return _IN_PROCESS if entries else _MODEL_ALONE


class ConversationTurns:
    """Which turns of conversations the replayed services have, where they store these themselves.

    A turn is replayed behind all earlier ones, or not at all: what it would find is not known.
    `stored` are numbers of last turns, by conversation, of an earlier part of the same replay.
    """

    def __init__(self, stored: Mapping[str, int]) -> None:
        self._stored = dict(stored)
        self._changed: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._holders: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, recording: Recording, *, sent: bool) -> AsyncIterator[str]:
        """Wait for earlier turns; yield why this one cannot be replayed, "" where it can.

        `sent`: an interrupted replay may have sent it.
        """
        name = conversation_of(recording)
        if not name:
            yield ""
            return
        self._holders[name] += 1
        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                if sent:
                    yield INTERRUPTED
                else:
                    known = self._stored.get(name, 0)
                    yield "" if recording.serving.turn == known + 1 else NO_TURN
        finally:
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name], self._locks[name]

    def store(self, recording: Recording, outcomes: Sequence[Outcome]) -> None:
        """Note that the services have a turn, if all of its runs have ended alike, and whole."""
        ends = {recording.last.outcome, *outcomes}
        name = conversation_of(recording)
        if name and len(ends) == 1 and ends <= STORING:
            self._stored[name] = self._changed[name] = recording.serving.turn

    def changes(self) -> dict[str, int]:
        """Return what was stored since the last call."""
        changed, self._changed = self._changed, {}
        return changed


def conversation_of(recording: Recording) -> str:
    """Name the conversation of an exchange that services store themselves; "" for any other."""
    if not recording.serving.own_histories:
        return ""
    request = recording.request
    name = recording.spec.conversation(request.body, request.session)
    return f"{recording.spec.name}:{name}" if name else ""
