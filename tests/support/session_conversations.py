"""Conversations of the session flow in a house: turns, and a model that remembers what it said."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.model import AssistantMessage, Chunk, ModelCall, Usage
from contract.records import RunRecord
from effects.model import ScriptedModel, Step, Wait
from effects.testing import World
from router.config.schema import Settings
from router.stack import StackName
from tests.support.router_world import House, Rules, Served

TOKENS = Usage(10, 20, 30)


def remembering(first: str) -> ScriptedModel:
    """Make a model that says `first`, and from then on repeats what it said before, and more."""

    def script(call: ModelCall) -> Iterable[Step]:
        said = [one.content for one in call.messages if isinstance(one, AssistantMessage)]
        text = f"{said[-1]} again" if said else first
        return (Wait(0.01), Chunk(text=text), Chunk(finish="stop"), Chunk(usage=TOKENS))

    return ScriptedModel(script)


def slow_to_begin(call: ModelCall) -> Iterable[Step]:
    """Take ten seconds for a first answer, unless it is to be quick."""
    asked = call.messages[-1].content
    said = [one.content for one in call.messages if isinstance(one, AssistantMessage)]
    first = (Chunk(text="quick"),) if asked == "quick" else (Wait(10.0), Chunk(text="blue"))
    text = (Chunk(text=f"{said[-1]} again"),) if said else first
    return (*text, Chunk(finish="stop"), Chunk(usage=TOKENS))


class Talk:
    """A conversation that is served red."""

    spec = SESSION
    body = SessionRequest(message="hello")
    options = SessionOptions(enable_tools=False)

    def world(self) -> World:
        """Build the world."""
        return World(remembering("red"))


def free(asks: ScriptedModel | None = None, **rules: Any) -> Rules:
    """Let all be mirrored by shadows with conversations of their own, that say blue first."""
    standing = {"shadow": 100, "mode": "live", "history": "own"}
    asked = asks or remembering("blue")
    return Rules(**{**standing, "flow": {"sticky": "none"}, "asks": asked, **rules})


def hello() -> SessionRequest:
    """Make the first turn of a session."""
    return SessionRequest(message="hello")


def turn(session: str, message: str = "and") -> SessionRequest:
    """Make one more turn in a session."""
    return SessionRequest(message=message, session_id=session)


def talking(rules: Rules) -> House:
    """Build a house of the session flow, with all of it in the shadow."""
    return House(Talk(), rules)


def session_of(served: Served) -> str:
    """Name the session a turn was of."""
    asked = served.stream.context.request
    return asked.body.session_id or asked.session


async def begun(house: House) -> str:
    """Begin a session and give its name."""
    return session_of(await house.ask())


async def talk(house: House, turns: int) -> str:
    """Hold a conversation of so many turns, each with its shadow before the next."""
    session = await begun(house)
    for number in range(1, turns):
        await say(house, session, f"and {number}")
    return session


async def say(house: House, session: str, message: str = "and") -> Served:
    """Make one more turn."""
    return await house.ask(turn(session, message))


async def recorded(house: House, served: Served) -> None:
    """Wait until the exchange of a turn is settled and written."""
    await house.contexts.settled_in(house.router, served.exchange)


def served_by(house: House, stack: StackName) -> Settings:
    """Return the settings with everybody served by a stack."""
    flow = house.settings.flows["session"]
    share = Decimal(100 if stack == "graph" else 0)
    served = flow.model_copy(update={"langgraph_percent": share})
    return house.settings.model_copy(update={"flows": {"session": served}})


def with_budget(house: House, tokens: int) -> Settings:
    """Return the settings with another budget of the shadows."""
    shadow = house.settings.shadow.model_copy(update={"tokens_per_day": tokens})
    return house.settings.model_copy(update={"shadow": shadow})


def shadows(house: House) -> list[RunRecord]:
    """Return the shadows' runs, in the order of their exchanges."""
    return [run for run in house.runs if run.role == "shadow"]


def texts(runs: Iterable[RunRecord]) -> list[str]:
    """Return what each run answered."""
    return [run.frames[-1][1].split('"content":"')[1].split('"')[0] for run in runs]
