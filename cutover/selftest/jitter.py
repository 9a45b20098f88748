"""Jitter: the same answers of the model, cut into other chunks that come at other times."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from contract.model import Chunk, ToolCallDelta
from effects.model import Wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from cutover.selftest.case import Answer, Case
    from effects.model import Step

CUTS_AT_MOST = 3
PAUSES = (0.0, 0.0, 0.004, 0.03, 0.2, 0.51, 1.3)
"""Seconds between two chunks: within the interval of the throttle, at it, beyond it."""


def jittered(case: Case, draw: Random) -> Case:
    """Give the case with every answer cut and timed anew; what is said stays as it is."""
    return replace(case, answers=tuple(recut(answer, draw) for answer in case.answers))


def recut(answer: Answer, draw: Random) -> Answer:
    """Cut an answer anew: texts are joined where nothing stands between, then cut elsewhere."""
    steps: list[Step] = []
    for step in _joined([step for step in answer if not isinstance(step, Wait)]):
        pieces = _cut(step, draw) if isinstance(step, Chunk) else [step]
        for piece in pieces:
            steps += [Wait(draw.choice(PAUSES)), piece]
    return tuple(step for step in steps if step != Wait(0.0))


def _joined(steps: Sequence[Step]) -> Iterator[Step]:
    """Join neighbours that are nothing but text, or nothing but reasoning."""
    before: Chunk | None = None
    for step in steps:
        if before is not None and isinstance(step, Chunk) and _alike(before, step):
            joint = before.text + step.text, before.reasoning + step.reasoning
            before = Chunk(text=joint[0], reasoning=joint[1])
            continue
        if before is not None:
            yield before
        before = step if isinstance(step, Chunk) else None
        if before is None:
            yield step
    if before is not None:
        yield before


def _alike(one: Chunk, other: Chunk) -> bool:
    kinds = {(bool(it.text), bool(it.reasoning)) for it in (one, other)}
    return len(kinds) == 1 and _bare(one) and _bare(other) and kinds != {(True, True)}


def _bare(chunk: Chunk) -> bool:
    return chunk == Chunk(text=chunk.text, reasoning=chunk.reasoning)


def _cut(chunk: Chunk, draw: Random) -> list[Step]:
    """Cut one chunk: reasoning before text, calls by their arguments, the rest last."""
    thoughts = [Chunk(reasoning=piece) for piece in _pieces(chunk.reasoning, draw)]
    texts = [Chunk(text=piece) for piece in _pieces(chunk.text, draw)]
    calls = [Chunk(tool_calls=(part,)) for call in chunk.tool_calls for part in _parts(call, draw)]
    rest = msgspec.structs.replace(chunk, text="", reasoning="", tool_calls=())
    return [*thoughts, *texts, *calls, *([] if rest == Chunk() else [rest])]


def _parts(call: ToolCallDelta, draw: Random) -> list[ToolCallDelta]:
    first, *others = _pieces(call.arguments, draw) or [""]
    head = msgspec.structs.replace(call, arguments=first)
    return [head, *(ToolCallDelta(call.index, "", "", other) for other in others)]


def _pieces(text: str, draw: Random) -> list[str]:
    """Cut a text at places drawn; "" has no pieces."""
    if not text:
        return []
    cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randint(0, CUTS_AT_MOST)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    return [piece for piece in pieces if piece]
