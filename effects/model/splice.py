"""Splicing: a second answer goes on behind what was sent of the first, if it begins with that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec.structs import replace

from contract.errors import CutoverError
from contract.model import Chunk, ToolCallDelta

MAX_CHUNKS: Final = 50_000
"""Chunks of an answer that are stored for comparison; beyond, it is not rescued once it began.

Nor is one that said other things than text, reasoning and tool calls: it cannot be compared."""

Extent = Literal["nothing", "something", "too_much"]

_Key = tuple[str | int, ...]
_Piece = tuple[_Key, str, Chunk]
"""What a piece is (text, reasoning, part of a tool call), its text, and the chunk of it alone."""


class AnswerMismatch(CutoverError):
    """A second answer does not begin with what was sent of the first."""

    def __init__(self) -> None:
        super().__init__("the second answer does not begin with what was sent of the first")


@dataclass(slots=True, eq=False)
class SentAnswer:
    """What was sent of an answer."""

    _chunks: list[Chunk] = field(default_factory=list)
    _many: bool = False

    @property
    def extent(self) -> Extent:
        """How much was sent."""
        if self._many:
            return "too_much"
        return "something" if self._chunks else "nothing"

    def note(self, chunks: Sequence[Chunk]) -> None:
        """Note chunks that are sent."""
        for chunk in chunks:
            if chunk.other and chunk.other.keys() != {"content"}:
                self._many = True
        if self._many or len(self._chunks) >= MAX_CHUNKS:
            self._chunks.clear()
            self._many = True
        else:
            self._chunks += chunks

    def splice(self) -> Splice | None:
        """Begin another answer behind this one; None where nothing was sent."""
        return Splice(self._chunks) if self._chunks else None


class Splice:
    """Drops of a second answer what was sent of the first; what comes after it passes.

    Pieces count in their order, and a tool call by its id, name and arguments. Chunk boundaries
    do not count.
    """

    def __init__(self, sent: Iterable[Chunk]) -> None:
        self._expected = _runs(sent)
        self._expected.reverse()
        self._model = ""

    def feed(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Take chunks, return what of them is new; raises `AnswerMismatch`."""
        return [new for chunk in chunks for new in self._new(chunk)]

    def end(self) -> None:
        """Take the end of the second answer; raises `AnswerMismatch` where it is shorter."""
        if self._expected:
            raise AnswerMismatch

    def _new(self, chunk: Chunk) -> Iterator[Chunk]:
        self._model = chunk.model or self._model
        if not self._expected:
            yield self._named(chunk)
            return
        for key, text, alone in _pieces(chunk):
            left = self._drop(key, text) if self._expected else text
            if left is not None:
                yield self._named(alone if left == text else _cut(alone, left))
        if chunk.finish and self._expected:
            raise AnswerMismatch
        if chunk.finish or chunk.usage is not None:
            yield self._named(Chunk(finish=chunk.finish, usage=chunk.usage))

    def _drop(self, key: _Key, text: str) -> str | None:
        """Compare a piece with what is expected; return what is left of it, None if nothing is."""
        key_expected, expected = self._expected[-1]
        if key != key_expected:
            raise AnswerMismatch
        shared = min(len(expected), len(text))
        if expected[:shared] != text[:shared]:
            raise AnswerMismatch
        self._expected.pop()
        if shared < len(expected):
            self._expected.append((key, expected[shared:]))
        elif text[shared:] and self._expected:
            raise AnswerMismatch  # longer here than the first answer before that went on
        return text[shared:] or None

    def _named(self, chunk: Chunk) -> Chunk:
        """Let the first chunk that passes carry the model's name."""
        if not self._model:
            return chunk
        model, self._model = self._model, ""
        return replace(chunk, model=model)


def _runs(chunks: Iterable[Chunk]) -> list[tuple[_Key, str]]:
    """Join the pieces of chunks: (what it is, its text), with neighbours of a kind made one."""
    runs: list[tuple[_Key, list[str]]] = []
    for chunk in chunks:
        for key, text, _ in _pieces(chunk):
            if runs and runs[-1][0] == key:
                runs[-1][1].append(text)
            else:
                runs.append((key, [text]))
    return [(key, "".join(texts)) for key, texts in runs]


def _pieces(chunk: Chunk) -> Iterator[_Piece]:
    if chunk.reasoning:
        # Its field is the provider's own word, and another provider may have another.
        yield ("reasoning",), chunk.reasoning, Chunk(reasoning=chunk.reasoning, field=chunk.field)
    if chunk.text:
        yield ("text", chunk.field), chunk.text, Chunk(text=chunk.text, field=chunk.field)
    for delta in chunk.tool_calls:
        if delta.id or delta.name:
            opening = ToolCallDelta(delta.index, delta.id, delta.name)
            yield ("call", delta.index, delta.id, delta.name), "", Chunk(tool_calls=(opening,))
        if delta.arguments:
            rest = ToolCallDelta(delta.index, arguments=delta.arguments)
            yield ("arguments", delta.index), delta.arguments, Chunk(tool_calls=(rest,))


def _cut(chunk: Chunk, text: str) -> Chunk:
    """Replace the text of a chunk of one piece."""
    if chunk.tool_calls:
        return Chunk(tool_calls=(replace(chunk.tool_calls[0], arguments=text),))
    return replace(chunk, reasoning=text) if chunk.reasoning else replace(chunk, text=text)
