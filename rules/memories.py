"""Facts to remember: read from a model's answer, confirmed by the user, shown in prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from contract.human import Form, FormField, HumanAnswer, values
from contract.ports import Effects
from contract.stores import MemoryEntry

LONGEST: Final = 500
"""Characters of one fact; longer ones are dropped."""
MOST: Final = 20
"""Facts read from one answer."""

_FENCED = re.compile(r"```(?:json)?(.*?)```", re.DOTALL)
_KEYS = ("memories", "facts", "items", "operations")
_TEXTS = ("text", "content", "fact", "memory")

KIND: Final = "memory_confirm"
"""Kind of the question that confirms memories."""
_HEADING: Final = "\n\n相关记忆：\n"


class Fact(msgspec.Struct, frozen=True):
    """A fact a model found worth remembering; `confidence` from 0 to 1."""

    text: str
    confidence: float = 1.0


def facts(answer: str) -> tuple[Fact, ...]:
    """Read the facts in a model's answer: JSON, in a fence or in prose; the rest is left out.

    A list, or an object with one under a usual name; its items are texts, or objects with a text
    and perhaps a confidence. Equal texts count once, the first time.
    """
    found: dict[str, Fact] = {}
    for item in items(answer):
        fact = _fact(item)
        if fact is not None:
            found.setdefault(fact.text, fact)
    return tuple(found.values())[:MOST]


def confident_facts(answer: str, least: float) -> tuple[Fact, ...]:
    """Read the facts of at least a confidence; a fact without one is certain."""
    return tuple(fact for fact in facts(answer) if fact.confidence >= least)


async def remember(
    effects: Effects, site: str, found: Iterable[Fact], owner: str, session: str
) -> int:
    """Write facts to long-term memory; returns how many were new."""
    entries = [
        MemoryEntry(
            memory_id=await effects.ids.new("memory"),
            user_id=owner,
            text=fact.text,
            session_id=session,
            confidence=fact.confidence,
        )
        for fact in found
    ]
    return await effects.memory.write(site, tuple(entries))


def as_list(memories: Iterable[MemoryEntry]) -> str:
    """Return memories as a list, each on one line."""
    return "\n".join(f"- {' '.join(memory.text.split())}" for memory in memories)


def as_paragraph(memories: Iterable[MemoryEntry]) -> str:
    """Return memories as the paragraph that ends a system prompt; "" without any."""
    listed = as_list(memories)
    return _HEADING + listed if listed else ""


def items(answer: str) -> list[Any]:
    """Read the list in a model's answer; [] where there is none."""
    for value in json_values(answer):
        listed = value
        if isinstance(value, dict):
            listed = next((value[key] for key in _KEYS if key in value), None)
        if isinstance(listed, list):
            return listed
    return []


def json_values(answer: str) -> Iterator[Any]:
    """Yield what may be the JSON of a model's answer: all of it, in a fence, or in prose."""
    for candidate in _candidates(answer):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            yield msgspec.json.decode(candidate)


def _candidates(answer: str) -> Iterator[str]:
    yield answer
    for fenced in _FENCED.finditer(answer):
        yield fenced[1]
    for opening, closing in (("{", "}"), ("[", "]")):
        start, end = answer.find(opening), answer.rfind(closing)
        if 0 <= start < end:
            yield answer[start : end + 1]


def _fact(item: Any) -> Fact | None:
    text = text_of(item)
    if text is None:
        return None
    stated = item.get("confidence", 1.0) if isinstance(item, dict) else 1.0
    return Fact(text, confidence_of(stated))


def text_of(item: Any) -> str | None:
    """Return the text of a fact, or of an object with one; None where it is empty or too long."""
    text = item
    if isinstance(item, dict):
        text = next((item[key] for key in _TEXTS if key in item), None)
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST or "\x00" in text:
        return None
    return text.strip()


def confidence_of(value: Any) -> float:
    """Return a confidence from 0 to 1; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= 1 else 0.0


def memory_form(found: Sequence[Fact], title: str, label: str) -> Form:
    """Build a form with a field for each fact; the label may hold `{number}`, `{confidence}`."""
    return Form(title, tuple(_field(number, fact, label) for number, fact in enumerate(found, 1)))


def approved_facts(found: Sequence[Fact], form: Form, answer: HumanAnswer) -> tuple[Fact, ...]:
    """Return the facts to remember, as they stand in the answer; none after a rejection.

    Emptied ones are left out, equal ones count once, edited ones are certain.
    """
    if answer.action == "reject":
        return ()
    answers = values(form, answer)
    kept: dict[str, Fact] = {}
    for field, fact in zip(form.fields, found, strict=True):
        text = str(answers[field.name] or "").replace("\x00", "").strip()[:LONGEST]
        if text:
            kept.setdefault(text, fact if text == fact.text else Fact(text))
    return tuple(kept.values())


def _field(number: int, fact: Fact, label: str) -> FormField:
    label = label.replace("{number}", str(number))
    label = label.replace("{confidence}", f"{fact.confidence:.2f}")
    return FormField(f"memory_{number}", label, "text", required=False, value=fact.text)
