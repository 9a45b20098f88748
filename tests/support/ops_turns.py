"""Turns of the ops flow, and the scripted worlds they meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec

from contract.errors import EffectFailed, Fault
from contract.flow import Flow, FlowSpec, Request
from contract.flows.ops import OPS, OpsOptions, OpsRequest
from contract.flows.session import lock_key
from contract.human import HumanAnswer
from contract.model import Chunk
from contract.stores import Turn
from contract.workers import WorkerResult
from cutover.selftest.cases import FAULTS, INFO, Answer, FailingStore, likely, text
from effects.local import CountingIds, ScriptedHuman
from effects.model import Fail, ScriptedModel, Wait, in_turn
from effects.stores import MemoryConversations
from effects.testing import World
from effects.workers import MemoryAudit, ScriptedWorkers, WorkerStep
from effects.workers.fake import WorkerScript
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.support.pausing_flow import Desk, Reply

SESSION_ID = "s"
YES = HumanAnswer("approve", by="ann")
NO = HumanAnswer("reject", by="bob")
RESTART = '{"worker":"container","action":"restart","args":{"name":"web"}}'
DISK = '{"worker":"system","action":"disk"}'
MEMORY = '{"worker":"system","action":"memory"}'


def good(message: str, data: Any = None) -> WorkerResult:
    """Return a result."""
    return WorkerResult(ok=True, message=message, data=data)


def bad(code: str) -> WorkerResult:
    """Return a failure."""
    return WorkerResult(ok=False, message=f"failed: {code}", code=code)


WORKERS: Mapping[str, tuple[WorkerStep, ...]] = {
    "system.disk": ("reading /", Wait(2), "reading /data", Wait(1), good("two disks")),
    "system.memory": ("reading", Wait(0.5), good("8 GB")),
    "system.processes": (Wait(9), good("3 processes", [{"pid": 1}, {"pid": 7}])),
    "system.large_files": (Wait(1), bad("worker_timeout")),
    "network.reach": (Wait(0.2), Fail(Fault("worker_unavailable", retryable=True))),
    "container.list": (good("2 containers", [{"name": "web"}, {"name": "db"}]),),
    "container.logs": ("…",),
    "container.restart": ("stopping", Wait(3), "starting", good("restarted")),
    "deploy.plan": (good("planned", {"release": "r-7"}),),
    "deploy.build": ("building", Wait(20), good("built")),
    "deploy.release": (good("released"),),
    "deploy.verify": (Wait(5), good("verified")),
    "deploy.rollback": (good("the old release is live"),),
}
UNHEALTHY = {**WORKERS, "deploy.verify": (Wait(5), bad("unhealthy"))}


def says(*pieces: str) -> Answer:
    """Answer with a text, in pieces."""
    return (*(Chunk(text=piece) for piece in pieces), Chunk(finish="stop"))


def steps(*instructions: str) -> Answer:
    """Answer with a step of instructions."""
    whole = f'{{"instructions":[{",".join(instructions)}]}}'
    return says(whole[:9], whole[9:])


FINAL = says('{"final":', '"all done"}')


class FailingAudit(MemoryAudit):
    """A log that never takes its `fails_at`-th entry, counted from 0."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self._fails_at = fails_at
        self._seen: list[str] = []

    async def append(self, site: str, entry: Any) -> None:
        """Append an entry."""
        if entry.entry_id not in self._seen:
            self._seen.append(entry.entry_id)
        if self._seen.index(entry.entry_id) == self._fails_at:
            raise EffectFailed(Fault("audit_unavailable"))
        await super().append(site, entry)


@dataclass
class House:
    """What lasts from turn to turn."""

    conversations: MemoryConversations = field(default_factory=MemoryConversations)
    audit: MemoryAudit = field(default_factory=MemoryAudit)
    ids: CountingIds = field(default_factory=CountingIds)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """One turn and its world; `answers` are the model's, in turn, `human` those that come at once.

    `fails` are faults by site of the conversations.
    """

    body: OpsRequest = field(default_factory=lambda: OpsRequest(input="hm", session_id=SESSION_ID))
    options: OpsOptions = field(default_factory=OpsOptions)
    answers: tuple[Answer, ...] = (FINAL,)
    human: tuple[HumanAnswer, ...] = ()
    workers: WorkerScript | Mapping[str, tuple[WorkerStep, ...]] = field(
        default_factory=lambda: WORKERS
    )
    house: House = field(default_factory=House)
    fails: Mapping[str, Fault] = field(default_factory=dict)
    busy: bool = False

    spec: FlowSpec = OPS

    @property
    def request(self) -> Request[OpsRequest, OpsOptions]:
        """The request as the flow gets it."""
        return Request(self.body, self.options)

    @property
    def taken(self) -> str:
        """The lock another exchange holds, "" for none."""
        return lock_key(self.body.session_id) if self.busy else ""

    def world(self) -> World:
        """Build the world."""
        return World(
            ScriptedModel(in_turn(*self.answers), (INFO,)),
            workers=ScriptedWorkers(self.workers),
            human=ScriptedHuman(self.human),
            conversations=FailingStore(self.house.conversations, self.fails),
            audit=self.house.audit,
            ids=self.house.ids,
        )


def shift(message: str, *answers: Answer, **fields: Any) -> Shift:
    """Return a turn with a message."""
    limit, turns = fields.pop("max_iterations", None), fields.pop("turns", ())
    fields.setdefault("house", House(MemoryConversations(turns)))
    body = OpsRequest(input=message, session_id=SESSION_ID, max_iterations=limit)
    return Shift(body=body, answers=answers or (FINAL,), **fields)


SAID = (
    *("check the disks and memory", "restart web", "重启第一个", "deploy", "list containers"),
    *("restart the second one", "为什么慢？", "hm", "{x} {{y}} {% z %}", "check processes"),
    *("第一个呢", "can db:5432 be reached?", "delete temporary files *"),
)
_INSTRUCTIONS = (
    *(DISK, MEMORY, RESTART, '{"worker":"system","action":"large_files"}'),
    '{"worker":"network","action":"reach","args":{"host":"db","port":5432}}',
    '{"worker":"container","action":"list"}',
    '{"worker":"container","action":"logs","args":{"name":"web"}}',
    '{"worker":"deploy","action":"run"}',
    '{"worker":"deploy","action":"rollback"}',
    '{"worker":"shell","action":"run","args":{"command":"rm -rf /"}}',
    '{"worker":"container","action":"restart","args":{"name":7}}',
    '{"worker":"system","action":"processes","args":{"count":1}}',
    *('{"action":"disk"}', "7", '{"worker":"system","action":"memory","args":null}'),
    f'{{"worker":"system","action":"delete_temporary","args":{{"path":"{"a" * 5_000}"}}}}',
)


def conversation(seed: int) -> list[Shift]:
    """Draw the turns of one session, all on one house."""
    draw = Random(seed)
    house = House(audit=FailingAudit(draw.randrange(40) if likely(draw, 0.3) else None))
    if likely(draw, 0.5):
        told = Turn(
            message_id="h-1",
            role="assistant",
            content="2 containers",
            chat_id=SESSION_ID,
            data={"iteration": 1, "items": ["web", "db"]},
        )
        house.conversations = MemoryConversations([told])
    options = OpsOptions(
        model_id=draw.choice(("gpt-4.1",) * 20 + ("no-such-model",)),
        max_iterations=draw.choice((1, 2, 10)),
        approvals=draw.choice(("ask", "ask", "refuse")),
        history_limit=draw.choice((1, 20)),
        history_tokens=draw.choice((10, 8_000)),
    )
    return [
        Shift(
            body=OpsRequest(
                input=draw.choice(SAID),
                session_id=SESSION_ID,
                max_iterations=draw.choice((None, None, 1, 3)),
            ),
            options=options,
            answers=tuple(_answer(draw) for _ in range(50)),
            human=tuple(draw.choices((YES, YES, NO), k=draw.choice((0, 3, 60)))),
            workers=draw.choice((WORKERS, UNHEALTHY, {})),
            house=house,
            fails=_fails(draw),
            busy=likely(draw, 0.02),
        )
        for _ in range(draw.randint(1, 5))
    ]


def _answer(draw: Random) -> Answer:
    if likely(draw, 0.05):
        return (Chunk(text="…"), Fail(Fault(draw.choice(FAULTS), retryable=True)))
    if likely(draw, 0.1):
        return says(text(draw, 0, 4))
    if likely(draw, 0.35):
        return says(msgspec.json.encode({"final": text(draw, 1, 6)}).decode())
    return steps(*draw.choices(_INSTRUCTIONS, k=draw.choice((1, 1, 2, 3, 8, 13))))


def _fails(draw: Random) -> dict[str, Fault]:
    sites = ("history", "message", "reply")
    return {site: Fault("store_failed") for site in sites if likely(draw, 0.02)}


class OpsDesk(Desk):
    """Takes turns of shifts; the world is that of the first one, in a house of its own."""

    def __init__(
        self, first: Shift, *, legacy: Flow = LEGACY["ops"], graph: Flow = GRAPH["ops"]
    ) -> None:
        self.options, self.house = first.options, House()
        first = replace(first, house=self.house)
        super().__init__(first.world(), legacy=legacy, graph=graph, spec=OPS)

    async def react(self, message: str = "restart web", leaves: int = -1) -> Reply:
        """Take a turn."""
        return await self.take(OpsRequest(input=message, session_id=SESSION_ID), leaves=leaves)

    async def decide(
        self, approval_id: str, *, approved: bool = True, by: str = "ann", leaves: int = -1
    ) -> Reply:
        """Decide, and continue, as one request does; raises `Problem`."""
        answer = HumanAnswer("approve" if approved else "reject", by=by)
        await self.router.respond(OPS, approval_id, answer)
        return await self.go_on(approval_id, leaves)

    @property
    def audited(self) -> list[tuple[str, str, str]]:
        """The audit log: event, action, who decided."""
        return [(entry.event, entry.action, entry.by) for entry in self.house.audit.entries]


def approval_id(reply: Reply) -> str:
    """Return the id of the approval a reply asks for."""
    return str(next(e["approval_id"] for e in reply.events[::-1] if "approval_id" in e))
