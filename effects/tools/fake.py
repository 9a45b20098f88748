"""The fake of the tools port: answers from a table, counts, can be slow, can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from contract.errors import EffectFailed, Fault
from contract.model import ToolCall, ToolResult, ToolSpec
from effects.tools.tool import parameters

ANY_OBJECT = parameters({"type": "object"})


class ScriptedTools:
    """Tools whose answers are scripted.

    `answers` maps a tool's name to its text, or to a whole `ToolResult` (an error, say), or to a
    list of either, used up in order, the last one again and again. `slow` maps a name to seconds
    of loop time. `list_fails` is the fault that `list` raises. Tools named in `writes` are not
    read-only, those in `idempotent` may be called again. A name without an answer is an unknown
    tool. `calls` holds every call made.
    """

    def __init__(
        self,
        answers: Mapping[str, str | ToolResult | list[str | ToolResult]],
        *,
        slow: Mapping[str, float] | None = None,
        writes: Iterable[str] = (),
        idempotent: Iterable[str] = (),
        list_fails: Fault | None = None,
    ) -> None:
        self._answers = {
            name: list(answer) if isinstance(answer, list) else [answer]
            for name, answer in answers.items()
        }
        self._slow = dict(slow or {})
        self._writes = frozenset(writes)
        self._idempotent = frozenset(idempotent)
        self._list_fails = list_fails
        self.calls: list[ToolCall] = []

    @property
    def called(self) -> list[str]:
        """The names of the tools called, in order."""
        return [call.name for call in self.calls]

    def read_only(self, name: str) -> bool:
        """Whether calling a tool changes nothing."""
        return name not in self._writes

    def idempotent(self, name: str) -> bool:
        """Whether the same call may be made again where its result was lost."""
        return name in self._idempotent

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """Return the tools, in the order of the table."""
        if self._list_fails is not None:
            raise EffectFailed(self._list_fails)
        return tuple(ToolSpec(name, f"Scripted {name}.", ANY_OBJECT) for name in self._answers)

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Answer from the table, after the tool's delay."""
        self.calls.append(call)
        answers = self._answers.get(call.name)
        if not answers:
            return ToolResult(error="unknown_tool")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        await asyncio.sleep(self._slow.get(call.name, 0.0))
        return ToolResult(answer) if isinstance(answer, str) else answer
