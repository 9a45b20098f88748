"""Assembling the tool calls of one round from the pieces a model streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.tools import ToolCall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from contract.model import ToolCallDelta


class ToolCallAssembly:
    """Collects pieces by index."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}

    def add(self, deltas: Iterable[ToolCallDelta]) -> None:
        """Take the pieces of one chunk; the id counts once, name and arguments add up."""
        for delta in deltas:
            piece = self._pieces.setdefault(delta.index, ["", "", ""])
            piece[0] = piece[0] or delta.id
            piece[1] += delta.name
            piece[2] += delta.arguments

    def calls(self, round_number: int, taken: Collection[str] = ()) -> tuple[ToolCall, ...]:
        """Give the calls in index order; a missing or already `taken` id becomes our own."""
        seen = set(taken)
        calls: list[ToolCall] = []
        for index, (call_id, name, arguments) in sorted(self._pieces.items()):
            unique = call_id
            if not call_id or call_id in seen:
                unique = f"call_{round_number}_{index}"
            while unique in seen:  # the model may use our form, too
                unique += "_"
            seen.add(unique)
            calls.append(ToolCall(unique, name, arguments))
        return tuple(calls)
