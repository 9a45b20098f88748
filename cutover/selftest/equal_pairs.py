"""False alarms: findings between runs that are equal.

In every second pair both stacks answer the same request live, each in a world of its own: the model
says the same to both, cut into other chunks that come at other times, and no tape makes the two
runs equal. In the others, of every flow, graph plays the tape of legacy, and the cadence counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import msgspec

from contract.model import Chunk, ToolCallDelta
from contract.records import RunRecord
from cutover.selftest.cases import Answer, Case, Scene, case
from cutover.selftest.runs import causes, on_virtual_time, serve, shadow
from cutover.selftest.scenes import SCENES, Turned
from effects.model import Step, Wait
from router.serving.stack import LocalStack

_MOST_EXAMPLES = 20
_MOST_CUTS = 3
_PAUSES = (0.0, 0.0, 0.004, 0.03, 0.2, 0.51, 1.3)
"""Seconds between two chunks: below, at and above the throttle's interval."""


class Alarm(msgspec.Struct, frozen=True):
    """An equal pair in which something was found; its seed makes the pair again."""

    seed: int
    found: tuple[str, ...]


class Alarms(msgspec.Struct, frozen=True):
    """The equal pairs compared: how many, how many raised an alarm, and the first of those.

    `recut` counts pairs whose streams were cut differently, `ended` pairs by outcome.
    """

    pairs: int
    raised: int
    recut: int
    ended: dict[str, int]
    first: tuple[Alarm, ...]

    @property
    def rate(self) -> float:
        """Share of pairs with a finding; 0 without pairs."""
        return self.raised / self.pairs if self.pairs else 0.0

    def merged(self, other: Alarms) -> Alarms:
        """Add those of the pairs that follow."""
        return Alarms(
            self.pairs + other.pairs,
            self.raised + other.raised,
            self.recut + other.recut,
            dict(Counter(self.ended) + Counter(other.ended)),
            (*self.first, *other.first)[:_MOST_EXAMPLES],
        )


NO_ALARMS = Alarms(0, 0, 0, {}, ())


def compare_equal_pairs(legacy: LocalStack, graph: LocalStack, seeds: range) -> Alarms:
    """Compare the equal pairs of these seeds."""
    raised, recut, first, ended = 0, 0, list[Alarm](), Counter[str]()
    batch = on_virtual_time(_equal_pairs(legacy, graph, seeds))
    for seed, (control, candidate) in zip(seeds, batch, strict=True):
        found = causes((control, candidate), "exact" if _one_tape(seed) else "tape")
        raised += bool(found)
        recut += [text for _, text in control.frames] != [t for _, t in candidate.frames]
        ended[control.outcome] += 1
        if found and len(first) < _MOST_EXAMPLES:
            first.append(Alarm(seed, tuple(map(str, found))))
    return Alarms(len(seeds), raised, recut, dict(ended), tuple(first))


async def _equal_pairs(
    legacy: LocalStack, graph: LocalStack, seeds: range
) -> list[tuple[RunRecord, RunRecord]]:
    return [await equal_pair(legacy, graph, seed) for seed in seeds]


async def equal_pair(
    legacy: LocalStack, graph: LocalStack, seed: int
) -> tuple[RunRecord, RunRecord]:
    """Let both stacks answer one drawn request, on one tape or live, the text cut in two ways."""
    draw, exchange_id = Random(f"jitter {seed}"), f"x-{seed:05}"
    if _one_tape(seed):
        scene = _drawn_scene(seed, draw)
        control = await serve(legacy, scene, exchange_id)
        return control, await shadow(graph, scene, control)
    drawn = case(seed)
    control = await serve(legacy, jittered(drawn, draw), exchange_id)
    return _on_one_tape(control, await serve(graph, jittered(drawn, draw), exchange_id))


def _one_tape(seed: int) -> bool:
    return seed % 2 == 1


def _drawn_scene(seed: int, draw: Random) -> Scene:
    """Draw a case of chat, or a turn of another flow, its answers cut and timed anew."""
    if seed % 4 == 1:
        return jittered(case(seed), draw)
    turns = [one for scenes in SCENES.values() for one in scenes if isinstance(one, Turned)]
    turns = [one for one in turns if not one.spec.declared]
    turn = draw.choice(turns)
    answers = tuple(recut(answer, draw) for answer in turn.answers)
    return replace(turn, answers=answers, facts=recut(turn.facts, draw))


def _on_one_tape(first: RunRecord, second: RunRecord) -> tuple[RunRecord, RunRecord]:
    """Append the second run's calls to the first run's tape: an exchange has one tape."""
    tape = tuple(first.tape or ())
    offset = len(tape)
    appended = (
        msgspec.structs.replace(entry, seq=entry.seq + offset) for entry in second.tape or ()
    )
    plays = (
        play if play.entry is None else msgspec.structs.replace(play, entry=play.entry + offset)
        for play in second.plays
    )
    return (
        msgspec.structs.replace(first, tape=(*tape, *appended)),
        msgspec.structs.replace(second, role="shadow", tape=None, plays=tuple(plays)),
    )


def jittered(case: Case, draw: Random) -> Case:
    """Return the case with every answer cut and timed anew; the text stays as it is."""
    return replace(case, answers=tuple(recut(answer, draw) for answer in case.answers))


def recut(answer: Answer, draw: Random) -> Answer:
    """Return an answer cut anew: adjacent texts are joined first, then cut elsewhere."""
    steps: list[Step] = []
    for step in _joined([step for step in answer if not isinstance(step, Wait)]):
        for piece in _cut(step, draw) if isinstance(step, Chunk) else [step]:
            steps += [Wait(draw.choice(_PAUSES)), piece]
    return tuple(step for step in steps if step != Wait(0.0))


def _joined(steps: Sequence[Step]) -> Iterator[Step]:
    """Join neighbours that are only text, or only reasoning."""
    before: Chunk | None = None
    for step in steps:
        if before is not None and isinstance(step, Chunk) and _joinable(before, step):
            before = Chunk(
                text=before.text + step.text, reasoning=before.reasoning + step.reasoning
            )
            continue
        if before is not None:
            yield before
        before = step if isinstance(step, Chunk) else None
        if before is None:
            yield step
    if before is not None:
        yield before


def _joinable(one: Chunk, other: Chunk) -> bool:
    kinds = {(bool(chunk.text), bool(chunk.reasoning)) for chunk in (one, other)}
    only_text = all(it == Chunk(text=it.text, reasoning=it.reasoning) for it in (one, other))
    return only_text and len(kinds) == 1 and kinds != {(True, True)}


def _cut(chunk: Chunk, draw: Random) -> list[Step]:
    """Cut one chunk: reasoning before text, then calls by their arguments, the rest last."""
    reasoning = [Chunk(reasoning=piece) for piece in _pieces(chunk.reasoning, draw)]
    texts = [Chunk(text=piece) for piece in _pieces(chunk.text, draw)]
    calls = [Chunk(tool_calls=(part,)) for call in chunk.tool_calls for part in _parts(call, draw)]
    rest = msgspec.structs.replace(chunk, text="", reasoning="", tool_calls=())
    return [*reasoning, *texts, *calls, *([] if rest == Chunk() else [rest])]


def _parts(call: ToolCallDelta, draw: Random) -> list[ToolCallDelta]:
    first, *others = _pieces(call.arguments, draw) or [""]
    head = msgspec.structs.replace(call, arguments=first)
    return [head, *(ToolCallDelta(call.index, "", "", other) for other in others)]


def _pieces(text: str, draw: Random) -> list[str]:
    """Cut a text at drawn places; "" has no pieces."""
    if not text:
        return []
    cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randint(0, _MOST_CUTS)))
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if a < b]
