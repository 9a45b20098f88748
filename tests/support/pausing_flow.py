"""A flow that asks a human, on two stacks, and a router that pauses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest

from contract.errors import EffectFailed, Fault, Refused
from contract.flow import (
    AnswerEndpoint,
    Body,
    ContinueEndpoint,
    Event,
    Flow,
    FlowSpec,
    Pausing,
    Request,
)
from contract.grammar import Grammar, many, one
from contract.human import Form, FormField, HumanAnswer, OpenQuestion
from contract.model import ModelCall, ToolCall, UserMessage
from contract.ports import Effects
from contract.wire import Dialect, EventNames
from contract.wire.sse import SseDecoder
from cutover.wiring.router import assemble_router
from effects.stores import MemoryPauses, Pause
from effects.stores.pauses import store as pause_store
from effects.testing import World
from router.config.schema import FlowSettings, RolloutSettings, Settings
from router.problems import Problem
from router.resume.pauses import Pauses
from router.router import Router
from router.serving.stack import LocalStack
from router.serving.stream import NotServed, ServedStream
from router.stack import StackName
from tests.support.router_world import Captured, each

DAY = 86_400.0


class Ask(msgspec.Struct, frozen=True):
    """A turn."""

    session_id: str
    message: str


class Options(msgspec.Struct, frozen=True):
    """Nothing to configure."""


class Given(msgspec.Struct, frozen=True):
    """An answer, as a client brings it."""

    hitl_id: str
    action: Literal["approve", "edit", "reject"]
    data: dict[str, str] = {}


class Continue(msgspec.Struct, frozen=True):
    """What is to go on."""

    hitl_id: str


class _Tagged(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class Said(_Tagged, frozen=True, tag="said"):
    """A piece of text."""

    content: str


class Asked(_Tagged, frozen=True, tag="asked"):
    """A question."""

    hitl_id: str


class Done(_Tagged, frozen=True, tag="done"):
    """Nothing follows."""

    status: str


def _encode(event: Event) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


SPEC = FlowSpec(
    name="asking",
    path="/ask",
    request=Ask,
    options=Options,
    events=Said | Asked | Done,
    grammar=Grammar((many("said", "asked"), one("done"))),
    dialect=Dialect(
        event=EventNames(path="type"),
        text={"said": "content"},
        terminal=("done",),
    ),
    failure=lambda _options, _code, _last: (Done("failed"),),
    encode=_encode,
    route_keys={"session_id": "session_id"},
    pausing=Pausing(
        AnswerEndpoint(
            "/respond",
            Given,
            lambda it: it.hitl_id,
            lambda it: HumanAnswer(it.action, dict(it.data)),
        ),
        ContinueEndpoint("/continue", Continue, lambda it: it.hitl_id),
        lambda _options, _last: (Done("suspended"),),
    ),
)

QUESTION = Form(
    "Which?",
    (FormField("colour", "Colour", "choice", required=True, value="red", options=("red", "blue")),),
)


async def looping(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
    """Talk, use a tool, ask; then say what was answered."""
    body = request.body
    if not await effects.locks.acquire("turn", f"session:{body.session_id}", 60.0):
        raise Refused(409, "session_busy")
    call = ModelCall(model_id="m", messages=(UserMessage(body.message),))
    async for chunk in effects.model.stream("reply", call):
        if chunk.text:
            yield Said(chunk.text)
    if body.message == "ask":
        async for event in _asking(body, effects):
            yield event
    yield Done("completed")


async def _asking(body: Ask, effects: Effects) -> AsyncIterator[Event]:
    await effects.tools.run("book", ToolCall("c1", "book", "{}"))
    hitl_id = await effects.human.open("ask", OpenQuestion(QUESTION, "confirm", body.session_id))
    yield Asked(hitl_id)
    answer = await effects.human.answer("ask", hitl_id)
    yield Said(f"{answer.action} {answer.data.get('colour', 'red')}")
    result = await effects.tools.run("pay", ToolCall("c2", "pay", "{}"))
    yield Said(result.content)


async def reading_first(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
    """Do the same with a step of its own before each event."""
    async for event in looping(request, effects):
        await asyncio.sleep(0)
        yield event


@dataclass(frozen=True)
class Reply:
    """What a client got: frames without comments, or a status and a code."""

    stream: ServedStream | None
    frames: tuple[str, ...] = ()
    status: int = 200
    code: str = ""

    @property
    def hitl_id(self) -> str:
        """The id of the question in the frames."""
        return str(next(e["hitl_id"] for e in reversed(self.events) if "hitl_id" in e))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The frames' JSON."""
        read = SseDecoder().feed("".join(self.frames).encode())
        return [{"type": it.event, **msgspec.json.decode(it.data)} for it in read]

    @property
    def said(self) -> list[str]:
        """What was said, and how it ended."""
        return [event.get("content") or event.get("status") or "?" for event in self.events]


class FlakyPauses(MemoryPauses):
    """Pauses that can be out of reach of those who renew."""

    away = False

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim."""
        if self.away:
            raise EffectFailed(Fault("store_unavailable", retryable=True))
        return await super().renew(hitl_id, owner, lease_s, tape)


class SteppedPauses(FlakyPauses):
    """Pauses that take a step before each call, and another one after each that changes them.

    `step` gets what is stored, and may raise: then the call ends there.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        step: Callable[[Mapping[str, Pause]], None],
        stored: dict[str, Pause] | None = None,
    ) -> None:
        super().__init__(clock)
        if stored is not None:
            self._pauses = stored
        self._step = step

    async def _insert(self, pause: Pause) -> bool:
        self._step(self._pauses)
        stored = await super()._insert(pause)
        self._step(self._pauses)
        return stored

    async def _read(self, hitl_id: str) -> Pause | None:
        self._step(self._pauses)
        return await super()._read(hitl_id)

    async def _move(
        self,
        hitl_id: str,
        decide: Callable[[Pause], tuple[pause_store.Reply, Pause]],
        *,
        question: bool = False,
    ) -> pause_store.Reply | None:
        self._step(self._pauses)
        reply = await super()._move(hitl_id, decide, question=question)
        self._step(self._pauses)
        return reply

    async def _remove_own(self, hitl_id: str, owner: str) -> None:
        self._step(self._pauses)
        await super()._remove_own(hitl_id, owner)
        self._step(self._pauses)


class Desk:
    """A router with one flow that asks, and the clients in front of it."""

    options: msgspec.Struct = Options()

    def __init__(
        self,
        world: World,
        *,
        legacy: Flow = looping,
        graph: Flow = reading_first,
        seconds: float = DAY,
        spec: FlowSpec = SPEC,
        pauses: FlakyPauses | None = None,
    ) -> None:
        self.spec = spec
        self.world = world
        self.captured = Captured()
        self.now = asyncio.get_running_loop().time
        self.pauses = pauses or FlakyPauses(self.now)
        self.assigned: StackName = "legacy"
        self.shadow = Decimal(0)
        self._flows: Mapping[str, Flow] = {"legacy": legacy, "graph": graph}
        self._seconds = seconds
        self._known: dict[tuple[StackName, Decimal, int], Settings] = {}
        self.router = self.start()

    def start(self, **changes: Any) -> Router:
        """Make a router over the same stores, as after a restart; with some parts changed."""
        parts: dict[str, Any] = {
            "flows": {self.spec.name: self.spec},
            "stacks": {
                name: LocalStack(name, {self.spec.name: self._flows[name]}, name)
                for name in ("legacy", "graph")
            },
            "live": lambda _flow, _: replace(
                self.world.live(), locks=self.world.locks.for_exchange()
            ),
            "captures": self.captured,
            "settings": self._settings,
            "monotonic": self.now,
            "wall": self.now,
            "pauses": Pauses(self.pauses, self._seconds, self.now),
        }
        self.router = assemble_router(**(parts | changes))
        return self.router

    def _settings(self) -> Settings:
        # A router reads them several times a request; the options, which they hold, keep their id.
        asked = (self.assigned, self.shadow, id(self.options))
        if asked not in self._known:
            self._known[asked] = self._made()
        return self._known[asked]

    def _made(self) -> Settings:
        flow = FlowSettings(
            enable_langgraph=True,
            langgraph_percent=Decimal(100 if self.assigned == "graph" else 0),
            langgraph_fallback=True,
            fallback_to_graph=True,
            shadow_percent=self.shadow,
            route_key="session_id",
            sticky="none",
            options=self.options,
        )
        return Settings(
            rollout=RolloutSettings(salt="salt"), flows={self.spec.name: flow}, version="v"
        )

    async def ask(self, message: str = "ask", session: str = "s", leaves: int = -1) -> Reply:
        """Take a turn, to the end."""
        return await self.take(Ask(session, message), leaves=leaves)

    async def take(self, body: Body, path: str = "", leaves: int = -1) -> Reply:
        """Take a turn of any flow, at one of its paths."""
        return await self._read(lambda: self.router.open(self.spec, body, None, path=path), leaves)

    async def go_on(self, hitl_id: str, leaves: int = -1) -> Reply:
        """Continue a pause, to the end, or until so many frames have come."""
        return await self._read(lambda: self.router.resume(self.spec, hitl_id, None), leaves)

    async def answered(self, **data: str) -> str:
        """Take a turn that asks, and answer its question; returns its id."""
        paused = await self.ask()
        await self.answer(paused.hitl_id, **data)
        return paused.hitl_id

    async def refused(self, hitl_id: str) -> tuple[int, str]:
        """Return what continuing a pause is refused with."""
        with pytest.raises(Problem) as caught:
            await self.go_on(hitl_id)
        return caught.value.status, caught.value.code

    async def answer(self, hitl_id: str, action: str = "approve", **data: str) -> None:
        """Answer a question; raises `Problem`."""
        await self.router.respond(self.spec, hitl_id, HumanAnswer(action, dict(data)))  # type: ignore[arg-type]

    async def _read(self, begin: Callable[[], Any], leaves: int) -> Reply:
        stream, frames = await begin(), list[str]()
        try:
            await stream.open()
            async for data in each(stream):
                frames.append(data.decode())
                if len(frames) == leaves:
                    stream.disconnect()
                    break
            await stream.close_in_grace()
        except Refused as refused:
            return Reply(stream, (), refused.status, refused.code)
        except NotServed as unserved:
            return Reply(stream, (), unserved.status, unserved.code)
        finally:
            self.router.close(stream)
            await self.settled(stream)
        return Reply(stream, tuple(one for one in frames if not one.startswith(":")))

    async def settled(self, stream: ServedStream) -> None:
        """Wait until an exchange is over and written down."""
        while self.router.runs(stream.context.exchange) is not None:
            await self.captured.changed.wait()
