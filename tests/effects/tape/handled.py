"""A model moved by hand, and readers that remember what they got: parts of the state machine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.errors import EffectFailed, Fault, Fenced, TapeCut
from contract.model import Chunk
from effects.model import ScriptedModel
from tests.support.tape_calls import asking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.model import ModelCall
    from effects.tape import TapeSession

FAULT = Fault("model_unavailable", retryable=True)


class HandledModel(ScriptedModel):
    """A model whose streams are moved by hand, one queue a call; None ends one well."""

    def __init__(self) -> None:
        super().__init__([])
        self.streams: list[asyncio.Queue[Chunk | Fault | None]] = []

    async def stream(self, *_: str | ModelCall) -> AsyncIterator[Chunk]:
        """Yield what is put into the queue of this call."""
        queue: asyncio.Queue[Chunk | Fault | None] = asyncio.Queue()
        self.streams.append(queue)
        while (item := await queue.get()) is not None:
            if isinstance(item, Fault):
                raise EffectFailed(item)
            yield item


@dataclass(eq=False)
class Asked:
    """A call: its text, what was said in answer and when, and how it ended."""

    text: str
    said: list[tuple[str, int]] = field(default_factory=list)
    end: str = "open"


@dataclass(eq=False)
class Reader:
    """A run that reads one call, what it got so far, and how its reading ended."""

    run: TapeSession
    asked: Asked
    got: list[tuple[str, int]] = field(default_factory=list)
    end: str = "open"
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, in a task of its own."""
        self.task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self.run.effects().model.stream("reply", asking(self.asked.text)):
                self.got.append((chunk.text, chunk.at))
        except Fenced:
            self.end = "fenced"
        except TapeCut:
            self.end = "cut"
        except EffectFailed:
            self.end = "error"
        else:
            self.end = "complete"
