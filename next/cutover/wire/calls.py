"""Which tool call a piece of a stream belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutover.chat_form import decode_or


@dataclass(slots=True, eq=False)
class StreamedCall:
    """A tool call of a stream, the `number`-th from 1; its name as far as it is known."""

    id: Any
    number: int
    name: str = ""


class Calls:
    """The tool calls of one stream, told apart as SDKs do: by id, else by index, else by order."""

    def __init__(self) -> None:
        self._all: list[StreamedCall] = []
        self._by_index: dict[Any, StreamedCall] = {}

    def of(
        self, id_: Any, index: Any, name: str, arguments: Callable[[StreamedCall], str]
    ) -> StreamedCall:
        """Return the call that a piece belongs to, a new one where it begins one.

        None stands for an id or an index that the piece lacks; `arguments` returns a call's so far.
        """
        call = next((one for one in self._all if id_ is not None and one.id == id_), None)
        if call is None:
            call = self._by_index.get(index) if index is not None else None
            if call is None and index is None and self._all:
                call = self._all[-1]
            if call is not None and _begins_anew(call, id_, name, arguments):
                call = None
        if call is None:
            call = StreamedCall(id_, len(self._all) + 1)
            self._all.append(call)
        call.id = call.id or id_
        if index is not None:
            self._by_index[index] = call
        return call


def _begins_anew(
    call: StreamedCall, id_: Any, name: str, arguments: Callable[[StreamedCall], str]
) -> bool:
    """Whether a piece that would go on with a call begins another one."""
    if id_ is not None:
        return call.id is not None
    if not (name and call.name):
        return False
    return name != call.name or decode_or(arguments(call), call) is not call
