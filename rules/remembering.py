"""What a picture tells that may be remembered: proposed to the user, kept as they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.forms import values
from contract.human import Answer, Field, Form
from rules.memories import LONGEST, Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND: Final = "memory_confirm"
"""How the question is told from those a model asks."""


def form(found: Sequence[Fact], title: str, label: str) -> Form:
    """Build the form: a text each; `{number}` and `{confidence}` in the label are filled in."""
    return Form(title, tuple(_field(number, fact, label) for number, fact in enumerate(found, 1)))


def approved(found: Sequence[Fact], asked: Form, answer: Answer) -> tuple[Fact, ...]:
    """Give what is to be remembered: none of it, or each as it stands in the answer.

    What was emptied is left out; what was written twice counts once; what the user wrote is sure.
    """
    if answer.action == "reject":
        return ()
    said = values(asked, answer)
    kept: dict[str, Fact] = {}
    for field, fact in zip(asked.fields, found, strict=True):
        text = str(said[field.name] or "").replace("\x00", "").strip()[:LONGEST]
        if text:
            kept.setdefault(text, fact if text == fact.text else Fact(text))
    return tuple(kept.values())


def _field(number: int, fact: Fact, label: str) -> Field:
    said = label.replace("{number}", str(number))
    said = said.replace("{confidence}", f"{fact.confidence:.2f}")
    return Field(f"memory_{number}", said, "text", required=False, value=fact.text)
