"""A model that answers from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from contract.errors import EffectFailed, Fault
from contract.model import Chunk, ModelCall, ModelInfo, Usage, UserMessage


@dataclass(frozen=True, slots=True)
class Wait:
    """Silence, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """The call fails here."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more will come, and no end either."""


Step = Chunk | Wait | Fail | Hang
Script = Callable[[ModelCall], Iterable[Step]]


class ScriptedModel:
    """Implements `contract.ports.Model` from a script, and records its calls.

    `script` is a function of the call, or steps for every call. `calls` are (site, call) in the
    order they were made, `open` counts streams that have begun and not ended, `cancelled` those
    that were closed or cancelled before their end; `left` is set with the first of these. `tokens`
    counts those of a text.
    """

    def __init__(
        self,
        script: Script | Sequence[Step],
        models: Iterable[ModelInfo] | None = None,
        tokens: Callable[[str], int] | None = None,
    ) -> None:
        self._script = script if callable(script) else in_turn(script)
        self._models = None if models is None else {info.model_id: info for info in models}
        self._tokens = tokens
        self.calls: list[tuple[str, ModelCall]] = []
        self.open = 0
        self.cancelled = 0
        self.left = asyncio.Event()

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Return what was given as `models`; without them every model is known by its own id."""
        return self._known(model_id)

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count with what was given as `tokens`; without it no tokenizer is at hand."""
        self._known(model_id)
        return None if self._tokens is None else tuple(map(self._tokens, texts))

    async def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Play the script's steps for this call."""
        self._known(call.model_id)
        self.calls.append((site, call))
        self.open += 1
        ended = False
        try:
            for step in self._script(call):
                match step:
                    case Chunk():
                        yield step
                    case _:
                        await act(step)
            ended = True
        except EffectFailed:
            ended = True
            raise
        finally:
            self.open -= 1
            if not ended:
                self.cancelled += 1
                self.left.set()

    def _known(self, model_id: str) -> ModelInfo:
        if self._models is None:
            return ModelInfo(model_id=model_id, model=model_id)
        if model_id not in self._models:
            raise EffectFailed(Fault("unknown_model", data={"model_id": model_id}))
        return self._models[model_id]


async def act(step: Wait | Fail | Hang) -> None:
    """Be silent, fail or hang, as a step says; raises `EffectFailed`."""
    match step:
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Fail(fault):
            raise EffectFailed(fault)
        case Hang():
            await asyncio.get_running_loop().create_future()
        case _:
            assert_never(step)


def says(
    *texts: str, every: float = 0.0, finish: str = "stop", usage: Usage | None = None
) -> list[Step]:
    """Make the steps of a plain answer: its texts, `every` seconds one, finish reason, usage."""
    steps: list[Step] = []
    for text in texts:
        steps += [Wait(every), Chunk(text=text)] if every else [Chunk(text=text)]
    return [
        *steps,
        Chunk(finish=finish),
        Chunk(usage=usage or Usage(1, len(texts), 1 + len(texts))),
    ]


def in_turn(*answers: Sequence[Step]) -> Script:
    """Make a script that answers the first call with the first answer, and so on, then the last."""
    left = list(answers)

    def script(_: ModelCall) -> Sequence[Step]:
        return left.pop(0) if len(left) > 1 else left[0]

    return script


def by_last_text(table: Mapping[str, Sequence[Step]]) -> Script:
    """Make a script that looks up the last text of the user; unknown text: `KeyError`."""

    def script(call: ModelCall) -> Sequence[Step]:
        said = [message for message in call.messages if isinstance(message, UserMessage)]
        return table[_plain(said[-1])]

    return script


def _plain(message: UserMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if hasattr(part, "text"))
