"""What is said of a folder of prompts: each with its label and reasons, and the counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from cutover.prompts.case import Proof
from cutover.prompts.judging import Judged, Label
from cutover.prompts.reasons import Care, Reach, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutover.prompts.folder import Prompt

Fate: TypeAlias = Literal["written", "unchanged", "not written", "not asked for"]
_WORST: tuple[Label, ...] = ("converts", "converts with care", "stays")
SILENT = (
    "a variable that is not given is nothing to Jinja2 and a KeyError to PromptTemplate: "
    "pass every name"
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: a file, or a chat of several."""

    name: str
    target: str
    label: Label
    variables: tuple[str, ...]
    reasons: tuple[Reason, ...]
    cares: tuple[Care, ...]
    reaches: tuple[Reach, ...]
    proof: Proof | None = None
    fate: Fate = "not asked for"


class PromptReport(msgspec.Struct, frozen=True, kw_only=True):
    """All prompts of a folder; `notes` are true of every one."""

    v: int = 1
    folder: str
    prompts: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    def count(self, label: Label) -> int:
        """How many prompts have a label."""
        return sum(entry.label == label for entry in self.prompts)

    @property
    def proved(self) -> int:
        """How many values were tried in all."""
        return sum(entry.proof.values for entry in self.prompts if entry.proof is not None)


def entry_of(prompt: Prompt, parts: Sequence[Judged]) -> Entry:
    """Sum up a prompt from its templates: it is as good as the worst of them."""
    return Entry(
        name=prompt.name,
        target=prompt.target,
        label=max((part.label for part in parts), key=_WORST.index, default="converts"),
        variables=tuple(dict.fromkeys(name for part in parts for name in part.variables)),
        reasons=tuple(why for part in parts for why in part.reasons),
        cares=tuple(care for part in parts for care in part.cares),
        reaches=tuple(reach for part in parts for reach in part.reaches),
    )
