"""What is drawn from conversations to be remembered, and how it is told to a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from contract.human import Form, FormField, HumanAnswer, values
from contract.stores import MemoryEntry

LONGEST: Final = 500
"""Characters of one fact; a longer one is no fact but a retelling."""
MOST: Final = 20
"""Facts that are taken from one answer."""

_FENCED = re.compile(r"```(?:json)?(.*?)```", re.DOTALL)
_KEYS = ("memories", "facts", "items")
_TEXTS = ("text", "content", "fact", "memory")


class Fact(msgspec.Struct, frozen=True):
    """Something a model says is worth remembering; `confidence` from 0 to 1."""

    text: str
    confidence: float = 1.0


def facts(answer: str) -> tuple[Fact, ...]:
    """Read the facts in a model's answer: JSON, in a fence or in prose; what is none is left out.

    A list, or an object with one under a usual name; its items are texts, or objects with a text
    and perhaps a confidence. Equal texts count once, the first time.
    """
    found: dict[str, Fact] = {}
    for item in _items(answer):
        fact = _fact(item)
        if fact is not None:
            found.setdefault(fact.text, fact)
    return tuple(found.values())[:MOST]


def worth(answer: str, least: float) -> tuple[Fact, ...]:
    """Read from a model's answer what it is sure enough of; what has no confidence is certain."""
    return tuple(fact for fact in facts(answer) if fact.confidence >= least)


def entries(
    found: Iterable[Fact], ids: Sequence[str], user_id: str, session_id: str
) -> tuple[MemoryEntry, ...]:
    """Build what is written to memory: a fact for each id."""
    return tuple(
        MemoryEntry(
            memory_id=memory_id,
            user_id=user_id,
            text=fact.text,
            session_id=session_id,
            confidence=fact.confidence,
        )
        for fact, memory_id in zip(found, ids, strict=True)
    )


def as_list(memories: Iterable[MemoryEntry]) -> str:
    """Tell memories as lines of a list, each on one line."""
    return "\n".join(f"- {' '.join(memory.text.split())}" for memory in memories)


def _items(answer: str) -> list[Any]:
    for candidate in _candidates(answer):
        try:
            said = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if isinstance(said, dict):
            said = next((said[key] for key in _KEYS if key in said), None)
        if isinstance(said, list):
            return said
    return []


def _candidates(answer: str) -> Iterator[str]:
    yield answer
    for fenced in _FENCED.finditer(answer):
        yield fenced[1]
    for opening, closing in (("{", "}"), ("[", "]")):
        start, end = answer.find(opening), answer.rfind(closing)
        if 0 <= start < end:
            yield answer[start : end + 1]


def _fact(item: Any) -> Fact | None:
    text, confidence = item, 1.0
    if isinstance(item, dict):
        text = next((item[key] for key in _TEXTS if key in item), None)
        confidence = _confidence(item.get("confidence", 1.0))
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST or "\x00" in text:
        return None
    return Fact(text.strip(), confidence)


def _confidence(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return 0.0
    return float(said) if 0 <= said <= 1 else 0.0


KIND: Final = "memory_confirm"
"""How the question is told from those a model asks."""


def form(found: Sequence[Fact], title: str, label: str) -> Form:
    """Build the form: a text each; `{number}` and `{confidence}` in the label are filled in."""
    return Form(title, tuple(_field(number, fact, label) for number, fact in enumerate(found, 1)))


def approved(found: Sequence[Fact], asked: Form, answer: HumanAnswer) -> tuple[Fact, ...]:
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


def _field(number: int, fact: Fact, label: str) -> FormField:
    said = label.replace("{number}", str(number))
    said = said.replace("{confidence}", f"{fact.confidence:.2f}")
    return FormField(f"memory_{number}", said, "text", required=False, value=fact.text)
