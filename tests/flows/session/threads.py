"""Threads of sessions, looked at behind the engine's back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg

from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk, ToolCallDelta
from graph_impl import FLOWS
from graph_impl.session import session
from graph_impl.threads import (
    Threads,
)
from router.serving.stack import LocalStack
from tests.flows.playing import record
from tests.flows.session.conversing import House, Saying

SESSION = "s-1"
SECRET = "quinces"
TABLES = {
    "sqlite": ("checkpoints", "writes"),
    "postgresql": ("checkpoints", "checkpoint_blobs", "checkpoint_writes"),
}
CALLS = (ToolCallDelta(0, "c", "dice", '{"of": "pears"}'),)


@dataclass(frozen=True, slots=True)
class Place:
    """Where threads are kept, looked at behind their back."""

    address: str

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of threads."""
        return TABLES[self.address.partition("://")[0]]

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement."""
        if self.address.startswith("sqlite"):
            with closing(sqlite3.connect(self.address.removeprefix("sqlite:///"))) as connection:
                rows = connection.execute(statement, values).fetchall()
                connection.commit()
                return rows
        with psycopg.connect(self.address) as own:
            found = own.execute(statement.replace("?", "%s").encode(), values)
            return found.fetchall() if found.description else []

    def rows(self) -> dict[str, int]:
        """Count the rows."""
        return {one: self.execute(f"SELECT count(*) FROM {one}")[0][0] for one in self.tables}  # noqa: S608 (ours)

    def everything(self) -> bytes:
        """Give all that stands in the tables."""
        found = [str(row) for one in self.tables for row in self.execute(f"SELECT * FROM {one}")]  # noqa: S608 (ours)
        return "\n".join(found).encode()


def turn(house: House, number: int, *, learns: bool = False) -> Saying:
    """Say something that makes the model use a tool, with memories at hand."""
    return Saying(
        body=SessionRequest(message=f"I like {SECRET} {number}", session_id=SESSION, user_id="u"),
        house=house,
        options=SessionOptions(
            unknown_session="create", system_prompt="BE BRIEF", extract_from=2 * learns
        ),
        answers=(
            (Chunk(text="let me see"), Chunk(tool_calls=CALLS), Chunk(finish="tool_calls")),
            (Chunk(text=f"heard {number}"),),
        ),
        tools={"dice": "SIX"},
    )


def graph(threads: Threads) -> LocalStack:
    """Give the graph stack with its threads there."""
    return LocalStack("graph", {**FLOWS, "session": session(threads=threads)}, "g1")


async def hold(threads: Threads, house: House, turns: int) -> None:
    """Hold so many turns."""
    stack = graph(threads)
    for number in range(turns):
        served, _ = await record(stack, turn(house, number))
        assert served.ended[0] == "completed"
