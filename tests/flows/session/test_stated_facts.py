"""Forty conversations with labelled facts: what is said in other words ends as one memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk, ModelCall
from contract.ports import Memory
from contract.stores import Recall
from effects.memory import open_memory
from effects.memory.local_embeddings import LocalEmbedder
from effects.model import ScriptedModel, Step
from effects.testing import World
from tests.support.flow_runs import STACKS, record
from tests.support.session_turns import House, Saying

FILE = Path(__file__).resolve().parents[2] / "data" / "stated_facts.txt"
KNOWN = re.compile(r"^\[(m\d+)\] (.*?)(?:（[^（）]*）)?$", re.MULTILINE)
SAID = re.compile(r"^user: (.*)$", re.MULTILINE)


class Statement(NamedTuple):
    """A message: the fact it states, by conversation and number, and how it is marked."""

    conversation: int
    fact: int
    mark: str
    text: str


@cache
def statements() -> tuple[Statement, ...]:
    """Read the file."""
    found, conversation, fact = [], 0, 0
    for line in FILE.read_text().splitlines():
        if line[:1] in {"=", "!", "+"}:
            conversation += line[0] == "="
            fact += 1
            found.append(Statement(conversation, fact, line[0], line[2:]))
        elif line[:1] == "~":
            stated = next(one.fact for one in found if one[:3] == (conversation, one.fact, "="))
            found.append(Statement(conversation, stated, "~", line[2:]))
    return tuple(found)


Reader = Callable[[dict[str, str], str], dict[str, str]]
"""Returns an operation, given the memories that are shown by their ids, and a message."""


def adds_all(_: dict[str, str], said: str) -> dict[str, str]:
    """Merge nothing: what is merged is by the rules and the embeddings alone."""
    return {"op": "add", "text": said}


def changes_all(shown: dict[str, str], said: str) -> dict[str, str]:
    """Take every message for the memory shown first, whatever it says."""
    return {"op": "update", "id": "m1", "text": said} if shown else adds_all(shown, said)


def overlooks(shown: dict[str, str], said: str) -> dict[str, str]:
    """Know what a message is about, and overlook numbers, names, negations and single words.

    Of several memories about that it takes the one that reads most like the message.
    """
    about = {one.text: one.conversation for one in statements()}
    meant = [short for short, text in shown.items() if about[text] == about[said]]
    if not meant:
        return adds_all(shown, said)
    likest = max(meant, key=lambda short: SequenceMatcher(None, shown[short], said).ratio())
    return {"op": "update", "id": likest, "text": said}


@dataclass(frozen=True, kw_only=True)
class Telling(Saying):
    """A turn that is learnt from, with a reader in the model's place."""

    memory: Memory
    reader: Reader

    def world(self) -> World:
        """Build the world."""

        def script(call: ModelCall) -> Iterable[Step]:
            if not call.json_object:
                return (Chunk(text="Noted."),)
            prompt = str(call.messages[-1].content)
            shown, said = dict(KNOWN.findall(prompt)), SAID.findall(prompt)
            answer = {"operations": [self.reader(shown, one) for one in said]}
            return (Chunk(text=msgspec.json.encode(answer).decode()),)

        house = self.house
        return World(
            ScriptedModel(script),
            memory=self.memory,
            conversations=house.conversations,
            ids=house.ids,
        )


class Learnt(NamedTuple):
    """The share of paraphrases that ended as the fact they state, and the facts that are gone."""

    merged: float
    lost: list[str]


async def told(path: Path, stack: str, reader: Reader, said: Sequence[Statement]) -> Learnt:
    """Say everything, one conversation after the other, and see what is remembered."""
    house, options = House(), SessionOptions(extract_from=1, recall_limit=0)
    async with LocalEmbedder.open() as embedder, open_memory(path, embedder) as memory:
        for one in said:
            body = SessionRequest(
                message=one.text, session_id=f"s-{one.conversation}", user_id="ann"
            )
            turn = Telling(body=body, options=options, house=house, memory=memory, reader=reader)
            served, _ = await record(STACKS[stack], turn)
            assert served.ended[0] == "completed"
        texts = {
            entry.text
            for one in said
            for entry in await memory.recall("r", Recall(user_id="ann", query=one.text, limit=20))
        }
    kept = Counter(one.fact for one in said if one.text in texts)
    doubled = sum(kept.values()) - len(kept)
    paraphrases = sum(one.mark == "~" for one in said)
    lost = [one.text for one in said if one.mark != "~" and one.fact not in kept]
    return Learnt(1 - doubled / paraphrases, lost)


def shuffled(seed: int) -> list[Statement]:
    """Return all statements, those of each conversation in another order."""
    draw = Random(seed)
    return sorted(statements(), key=lambda one: (one.conversation, draw.random()))


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize(
    ("reader", "order", "least"),
    [
        (adds_all, None, 0.15),
        (adds_all, 1, 0.15),
        (overlooks, None, 0.9),
        (overlooks, 1, 0.9),
        (overlooks, 2, 0.9),
        (changes_all, None, 0.9),
    ],
)
async def test_paraphrases_end_as_one_fact_and_no_fact_is_lost(
    tmp_path: Path, reader: Reader, order: int | None, least: float
) -> None:
    """Whatever a model makes of them, nothing that differs in a number, name or negation is lost.

    Of those that differ in an ordinary word a model alone can tell: one that cannot loses some.
    """
    said = statements() if order is None else shuffled(order)
    stack = "graph" if order else "legacy"
    if reader is not adds_all:
        said = [one for one in said if one.mark != "+"]
    learnt = await told(tmp_path / "memory.db", stack, reader, said)
    assert learnt.lost == []
    assert learnt.merged >= least
