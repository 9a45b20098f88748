"""Halves: characters that a model's token cut in two, whole again over consecutive deltas.

A token may end inside an emoji. Servers then write half a surrogate pair into each of two events,
or the bytes of one UTF-8 character into two JSON strings. Text in which that may be stands here
with lone surrogates: halves of pairs as they were written, U+DC80 to U+DCFF for single bytes.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from contract.model import ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.model import Chunk

_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BYTES: Final = re.compile("[\udc80-\udcff]+")
_LONE: Final = re.compile("[\ud800-\udfff]")
_HIGH: Final = re.compile("[\ud800-\udbff]\\Z")
_LAST_BYTES: Final = re.compile("[\udc80-\udcff]{1,3}\\Z")
REPLACEMENT: Final = "\ufffd"
"""Stands where a model said what is no text."""


def mended(text: str) -> str:
    """Join the halves in a text; what has no other half becomes U+FFFD."""
    text = _PAIR.sub(lambda pair: _joined(pair.group()), text)
    text = _BYTES.sub(lambda run: _bytes(run.group()).decode("utf-8", "replace"), text)
    return _LONE.sub(REPLACEMENT, text)


class Halves:
    """Holds the half at the end of each track back until the next delta of that track."""

    def __init__(self) -> None:
        self._held: dict[object, str] = {}

    @property
    def held(self) -> bool:
        """Whether some half waits for the other."""
        return bool(self._held)

    def join(self, chunk: Chunk, *, last: bool = False) -> Chunk:
        """Give a chunk whole characters; its last halves are held back unless it is the last one.

        Only what models say may be cut in two; in names and ids a half is replaced.
        """
        last = last or bool(chunk.finish)
        calls = [self._call(call) for call in chunk.tool_calls]
        return replace(
            chunk,
            text=self._said("text", chunk.text, last=last),
            reasoning=self._said("reasoning", chunk.reasoning, last=last),
            tool_calls=(*calls, *self._rest()) if last else tuple(calls),
            finish=mended(chunk.finish),
            model=mended(chunk.model),
        )

    def _call(self, call: ToolCallDelta) -> ToolCallDelta:
        arguments = self._said(call.index, call.arguments, last=False)
        return replace(call, id=mended(call.id), name=mended(call.name), arguments=arguments)

    def _rest(self) -> Iterator[ToolCallDelta]:
        while self._held:
            index, half = self._held.popitem()
            if isinstance(index, int):
                yield ToolCallDelta(index, arguments=mended(half))

    def _said(self, track: object, text: str, *, last: bool) -> str:
        if not text and not last:
            return ""
        text = self._held.pop(track, "") + text
        kept = 0 if last else _unfinished(text)
        if kept:
            self._held[track] = text[-kept:]
            text = text[:-kept]
        return mended(text)


def _unfinished(text: str) -> int:
    """Tell how many characters at the end of a text may be the beginning of another one."""
    if _HIGH.search(text):
        return 1
    found = _LAST_BYTES.search(text)
    if found is None:
        return 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(_bytes(found.group()))
    return len(decoder.getstate()[0])


def _joined(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _bytes(run: str) -> bytes:
    return run.encode("utf-8", "surrogateescape")
