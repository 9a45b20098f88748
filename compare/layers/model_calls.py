"""Model calls: what two runs asked the model for, in order: prompts and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compare.findings import (
    EffectFinding,
    ParameterChanged,
    PromptChanged,
    excerpts,
    shortened,
    signature_of,
)
from compare.layers.prompts import (
    MessageChange,
    message_changes,
    parameter_changes,
    roles_of,
)
from contract.operations import MODEL_STREAM

if TYPE_CHECKING:
    from compare.calls import Call
    from compare.pairs import Pair

MODEL = MODEL_STREAM.label
_TOOL_TURNS = frozenset({"assistant", "tool"})


class Prompts:
    """Compares model calls in order: what a later round merely repeats follows from the first."""

    def __init__(self, pair: Pair, tool: str | None) -> None:
        self._pair = pair
        self._tool = tool
        self._seen: dict[tuple[str, str | None, str | None], str] = {}

    def findings(self, twins: list[tuple[Call, Call]]) -> list[EffectFinding]:
        """Compare the model calls among calls that stand for each other."""
        found: list[EffectFinding] = []
        for old, new in twins:
            if old.label == MODEL and old.args != new.args:
                found += self._call(old, old.arguments, new.arguments)
        return found

    def _call(
        self, old: Call, legacy: dict[str, Any], graph: dict[str, Any]
    ) -> list[EffectFinding]:
        found: list[EffectFinding] = []
        new: list[MessageChange] = []
        for change in message_changes(legacy, graph):
            cause = self._cause(change)
            if cause is None:
                new.append(change)
            else:
                found.append(self._message(old, change, change.role, cause))
        found += self._new(old, new)
        for name, before, after in parameter_changes(legacy, graph):
            finding = ParameterChanged(
                path=f"{old.place}.{name}",
                exchange=self._pair.exchange,
                legacy=before,
                graph=after,
                after=self._seen.get((name, before, after)),
            )
            self._seen.setdefault((name, before, after), signature_of(finding))
            found.append(finding)
        return found

    def _cause(self, change: MessageChange) -> str | None:
        """Name what a changed message follows from, if from anything found before."""
        cause = self._seen.get(change[1:])
        return self._tool if cause is None and change.role in _TOOL_TURNS else cause

    def _new(self, old: Call, changed: list[MessageChange]) -> list[PromptChanged]:
        """Tell what nothing explains: one finding for the prompt, whatever else differs after it.

        Its path names every role, for what is accepted of one is not accepted of the others.
        """
        if not changed:
            return []
        first, *others = changed
        cause = self._message(old, first, roles_of(changed), None)
        signature = signature_of(cause)
        for change in changed:
            self._seen[change[1:]] = signature
        return [cause, *(self._message(old, change, change.role, signature) for change in others)]

    def _message(
        self, old: Call, change: MessageChange, roles: str, after: str | None
    ) -> PromptChanged:
        legacy, graph = _both(change.legacy, change.graph)
        return PromptChanged(
            path=f"{old.place}.messages[{change.at}].{roles}",
            exchange=self._pair.exchange,
            legacy=legacy,
            graph=graph,
            after=after,
        )


def _both(legacy: str | None, graph: str | None) -> tuple[str | None, str | None]:
    if legacy is None or graph is None:
        return legacy and shortened(legacy), graph and shortened(graph)
    return excerpts(legacy, graph)
