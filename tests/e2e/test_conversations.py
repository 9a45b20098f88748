"""Two services with histories behind a router, 200 fast conversations, a crash in 5 % of turns."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from compare.captures import Question, compare_captures
from compare.verdict import verdict_on
from contract.records import RunRecord
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.log_records import Lines, listening
from tests.support.scripted_service import Asked, Stream, serving

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

CONVERSATIONS, MOST_TURNS, AT_ONCE, CRASHES = 200, 6, 20, 0.05
FIRST_TURNS = 2
"""Turns of a conversation before the percentage changes."""
FLOW = """
[flows.support]
path = "/api/support"
route_keys = {{ session_id = "conversation" }}
enable_langgraph = false
langgraph_percent = 0
shadow_percent = 100
history = "{history}"
[flows.support.dialect]
terminal = ["done"]
text = {{ token = "text" }}
errors = {{ events = ["error"], code = "code" }}
failure = [{{ event = "error", data = '{{"code":"{{code}}"}}' }}]
[shadow]
queue = 2000
seconds = 600
[stacks.legacy]
url = "{legacy}"
shadow_safe = true
first_event_seconds = 600
[stacks.graph]
url = "{graph}"
shadow_safe = true
first_event_seconds = 600
"""


class Turn(msgspec.Struct, frozen=True):
    """A request: the services crash in the roles of `crash`."""

    conversation: str
    number: int
    crash: tuple[str, ...] = ()


_turn = msgspec.json.Decoder(Turn)
History = dict[int, str]
"""What was answered to each turn; "" to one that crashed."""


@dataclass
class Remembering:
    """A service that answers from its history of a conversation, which may be a shared one.

    A history of its own grows with every request; to a shared one a shadow adds nothing. Shadows of
    a conversation wait until all of its turns have been served: each has overtaken its shadow.
    """

    name: str
    own: bool
    served: Mapping[str, asyncio.Event]
    histories: defaultdict[str, History]
    shadows: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    open: set[str] = field(default_factory=set)
    overtaken: list[Turn] = field(default_factory=list)
    """Shadows that began before the one of an earlier turn had ended."""

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer a request, and note in which order shadows come."""
        turn, (role,) = _turn.decode(asked.body), asked.header("x-cutover-role")
        if role != "shadow":
            await self.answer(turn, role, stream)
            return
        if turn.conversation in self.open:
            self.overtaken.append(turn)
        self.open.add(turn.conversation)
        self.shadows[turn.conversation].append(turn.number)
        await self.served[turn.conversation].wait()
        self.open.discard(turn.conversation)
        await self.answer(turn, role, stream)

    async def answer(self, turn: Turn, role: str, stream: Stream) -> None:
        """Answer a turn with a digest of the turns before it."""
        history, stores = self.histories[turn.conversation], self.own or role != "shadow"
        before = {number: text for number, text in history.items() if number < turn.number}
        digest = blake2b(repr(sorted(before.items())).encode(), digest_size=4).hexdigest()
        if stores:
            history[turn.number] = ""
        await stream.head()
        await stream.send(event("token", text=f"turn {turn.number} after"))
        if role in turn.crash:
            stream.reset()
            return
        await stream.send(event("token", text=digest), event("done"))
        if stores:
            history[turn.number] = digest
        await stream.end()


def event(name: str, **data: str) -> bytes:
    """Write an event of the stream."""
    return f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode()


def turns(drawn: random.Random) -> Iterator[list[Turn]]:
    """Draw the turns of each conversation; in a twentieth of them one side crashes."""
    for number in range(CONVERSATIONS):
        sides = ("serving", "shadow")
        yield [
            Turn(f"c{number}", turn, (drawn.choice(sides),) if drawn.random() < CRASHES else ())
            for turn in range(1, drawn.randint(1, MOST_TURNS) + 1)
        ]


@dataclass
class Place:
    """A router before two services, and what its clients have seen."""

    router: Deployment
    legacy: Remembering
    graph: Remembering
    served: dict[str, asyncio.Event]
    stacks: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    exchanges: dict[str, Turn] = field(default_factory=dict)

    async def ask(self, turn: Turn) -> None:
        """Take one turn of a conversation, to its end."""
        url = f"{self.router.url}/api/support"
        async with self.router.session.post(url, data=msgspec.json.encode(turn)) as response:
            assert response.status == 200
            ended = b"event: error" if "serving" in turn.crash else b"event: done"
            assert ended in await response.read()
            self.stacks[turn.conversation].append(response.headers["x-cutover-assigned"])
            self.exchanges[response.headers["x-cutover-exchange"]] = turn

    def rollout(self, **values: object) -> None:
        """Change the rollout."""
        text = self.router.watched.path.read_text("utf-8")
        head, mark, flow = text.partition("[flows.support]\n")
        lines = flow.split("\n")
        for key, value in values.items():
            at = next(n for n, line in enumerate(lines) if line.startswith(f"{key} ="))
            lines[at] = f"{key} = {value}"
        self.router.edit(head + mark + "\n".join(lines))


@asynccontextmanager
async def placed(folder: Path, history: str) -> AsyncIterator[Place]:
    """Deploy two services that store histories, one each or a shared one, and a router."""
    served, shared = defaultdict[str, asyncio.Event](asyncio.Event), defaultdict[str, History](dict)
    own = history == "own"
    one, other = (
        Remembering(name, own, served, defaultdict(dict) if own else shared)
        for name in ("legacy", "graph")
    )
    async with serving(one) as legacy, serving(other) as graph:
        more = FLOW.format(history=history, legacy=legacy.url, graph=graph.url)
        async with deployed(folder, Setup(more=more)) as router:
            yield Place(router, one, other, served)


async def converse(place: Place, everyone: list[list[Turn]]) -> None:
    """Hold all conversations, some at a time, each as fast as it is answered.

    A quarter begins while the flow is off, the next ones at 0, 50 and 100 %.
    """
    phases: tuple[dict[str, object], ...] = (
        {},
        {"enable_langgraph": "true"},
        {"langgraph_percent": 50},
        {"langgraph_percent": 100},
    )
    quarter = CONVERSATIONS // len(phases)
    left: list[list[Turn]] = []

    async def hold(conversation: list[Turn]) -> None:
        async with at_once:
            for turn in conversation:
                await place.ask(turn)

    at_once = asyncio.Semaphore(AT_ONCE)
    for number, phase in enumerate(phases):
        if phase:
            place.rollout(**phase)
        begins = everyone[number * quarter : (number + 1) * quarter]
        await asyncio.gather(*(hold(turns[:FIRST_TURNS]) for turns in begins), *map(hold, left))
        left = [turns[FIRST_TURNS:] for turns in begins]
    place.rollout(langgraph_percent=0)
    await asyncio.gather(*map(hold, left))
    for conversation in everyone:
        place.served[conversation[0].conversation].set()


def pairs_of(runs: list[RunRecord]) -> dict[str, dict[str, RunRecord]]:
    """Return both runs of each exchange by role; shadows that were dropped have none."""
    found: defaultdict[str, dict[str, RunRecord]] = defaultdict(dict)
    for run in runs:
        if run.outcome != "cancelled":
            found[run.exchange][run.role] = run
    return {exchange: pair for exchange, pair in found.items() if len(pair) == 2}


def text_of(run: RunRecord) -> list[str]:
    """Return the frames of a run."""
    return [frame for _, frame in run.frames]


@pytest.mark.parametrize("history", ["shared", "own"])
async def test_fast_conversations_with_crashes_are_served_and_mirrored(
    tmp_path: Path, history: str
) -> None:
    """No shadow out of order, no pair that differs for want of history, no conversation moved.

    Every failure is one line in the log.
    """
    everyone = list(turns(random.Random(16)))
    with listening() as log:
        async with placed(tmp_path, history) as place:
            await converse(place, everyone)
            runs = await place.router.lines()
            ready = await place.router.get("/readyz")
            states = place.router.books()
            tally = compare_captures(
                f"{tmp_path}/captures", Question(place.router.services.router.flows)
            )
            assert tally.unshadowed["dropped(no_history)"] == states.get("dropped(no_history)", 0)
            mirrored = {one for one in verdict_on(tally).reasons if "stores its own" in one}
            assert bool(mirrored) == (history == "own")
    for service in (place.legacy, place.graph):
        for conversation, numbers in service.shadows.items():
            assert numbers == sorted(set(numbers)), conversation
            assert history == "shared" or numbers == list(range(1, len(numbers) + 1))
        assert not service.overtaken
    pairs = pairs_of(runs)
    for exchange, pair in pairs.items():
        equal = text_of(pair["serving"]) == text_of(pair["shadow"])
        assert equal == (not place.exchanges[exchange].crash), place.exchanges[exchange]
    if history == "own":
        assert all(len(set(stacks)) == 1 for stacks in place.stacks.values())
        assert ready["counts"]["conversations_moved"] == 0
    assert {stack for stacks in place.stacks.values() for stack in stacks} == {"legacy", "graph"}
    assert crashed_runs(log) == expected_crashes(place, pairs)
    off, gaps = not_mirrored(everyone)
    dropped = {"dropped(no_history)": gaps} if history == "own" else {}
    different = sum(bool(place.exchanges[exchange].crash) for exchange in pairs)
    compared = {"compared(equal)": len(pairs) - different, "compared(different)": different}
    assert states == {"not_sampled()": off, **dropped, **compared}
    assert sum(states.values()) == len(place.exchanges) == sum(map(len, everyone))


def not_mirrored(everyone: list[list[Turn]]) -> tuple[int, int]:
    """Return how many turns came while the flow was off, and how many follow those or a crash."""
    off = gaps = 0
    for number, conversation in enumerate(everyone):
        known = True
        for turn in conversation:
            is_off = number < CONVERSATIONS // 4 and turn.number <= FIRST_TURNS
            off += is_off
            gaps += not is_off and not known
            known = known and not is_off and not turn.crash
    return off, gaps


def crashed_runs(log: Lines) -> list[tuple[str, str]]:
    """Return exchange and role of each line of a failure."""
    return sorted((one["exchange"], one["role"]) for one in log.failures)


def expected_crashes(
    place: Place, pairs: Mapping[str, Mapping[str, RunRecord]]
) -> list[tuple[str, str]]:
    """Return exchange and role of each run that crashed: of shadows those that were started."""
    return sorted(
        (exchange, role)
        for exchange, turn in place.exchanges.items()
        for role in turn.crash
        if role == "serving" or exchange in pairs
    )
