"""Facts to remember: read from a model's JSON answer, bounded, and put into a form."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from rules.flows.fields import Share
from rules.forms import Form, FormField, HumanAnswer, form_values
from rules.prompts import text

LONGEST_FACT: Final = 500
"""Characters of one fact; longer ones are left out."""
MOST_CHANGES: Final = 20
"""Facts or changes that are read from one answer."""
SAME_SIMILARITY: Final = 0.9
"""Similarity from which a new fact is one that is known: it is not added again."""

LEAST_CONFIDENCE: Final = 0.3
"""Confidence from which a fact is remembered."""
RECALLED: Final = 5
"""Memories that a prompt is given at most."""
KNOWN: Final = 20
"""Known memories that are shown with a new conversation at most."""
LONGEST_QUERY: Final = 2_000
"""Characters of a query for memories: embeddings have a limit."""

Kind = Literal["identity", "preference", "plan", "relation", "other"]
FactText = Annotated[str, Meta(max_length=LONGEST_FACT, pattern=r"^\s*[^\s\x00][^\x00]*\Z")]

_FENCE: Final = re.compile(r"```(?:json)?(.*?)```", re.DOTALL)


class Fact(msgspec.Struct, frozen=True):
    """A fact about the user; one that states no confidence is certain."""

    text: FactText
    confidence: Share = 1.0
    type: Kind = "other"


class Change(msgspec.Struct, frozen=True):
    """A change to what is remembered; `id` is one of `known_lines`, a deletion has no text."""

    op: Literal["add", "update", "delete"] = "add"
    id: str = ""
    text: FactText | None = None
    confidence: Share = 1.0
    type: Kind = "other"


def memory_query(messages: Sequence[str]) -> str:
    """Return what to look for memories with: the end of what a user wrote."""
    return "\n".join(messages)[-LONGEST_QUERY:]


def known_lines(memories: Sequence[str]) -> list[str]:
    """Return known memories as the prompt lists them, with the ids `m1`, `m2`, … to refer to."""
    return [f"[m{number}] {memory}" for number, memory in enumerate(memories, 1)]


def known_index(change: Change) -> int:
    """Return the index of the known memory that a change from `read_changes` names; -1: none."""
    found = re.fullmatch(r"m(\d{1,4})", change.id.strip("[] "))
    return int(found[1]) - 1 if found else -1


def read_json(answer: str) -> Any:
    """Return the JSON value of a model's answer: all of it, in a code fence, or within prose.

    None where there is none.
    """
    fenced = [found[1] for found in _FENCE.finditer(answer)]
    within = [answer[answer.find(one) : answer.rfind(other) + 1] for one, other in ("{}", "[]")]
    for candidate in (answer, *fenced, *within):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return msgspec.json.decode(candidate)
    return None


def read_facts(answer: str, least_confidence: float) -> tuple[Fact, ...]:
    """Return the facts in an answer that are sure enough; equal texts count once."""
    found: dict[str, Fact] = {}
    for item in _listed(answer):
        with suppress(msgspec.ValidationError):
            fact = msgspec.convert(item, Fact)
            if fact.confidence >= least_confidence:
                found.setdefault(fact.text.strip(), fact)
    return tuple(found.values())[:MOST_CHANGES]


def read_changes(answer: str, known: int) -> tuple[Change, ...]:
    """Return the changes in an answer that was shown `known` memories by `known_lines`.

    Of several changes to one memory the first counts; an update of an unknown one adds its fact.
    """
    changes: list[Change] = []
    changed: set[int] = set()
    for item in _listed(answer)[:MOST_CHANGES]:
        with suppress(msgspec.ValidationError):
            change = msgspec.convert(item, Change)
            index = known_index(change)
            if change.op != "delete" and (change.op == "add" or not 0 <= index < known):
                change, index = msgspec.structs.replace(change, op="add"), -1
            sure = change.text is not None and change.confidence >= LEAST_CONFIDENCE
            if index not in changed and (0 <= index < known if change.op == "delete" else sure):
                changes.append(change)
                changed |= {index} - {-1}
    return tuple(changes)


def is_known(similarity: float | None) -> bool:
    """Return whether a fact whose nearest memory is this similar is known; None: there is none."""
    return similarity is not None and similarity >= SAME_SIMILARITY


def _listed(answer: str) -> list[Any]:
    """Return the items of an answer: its list, or the first list in its object; texts are facts."""
    value = read_json(answer)
    if isinstance(value, dict):
        value = next((one for one in value.values() if isinstance(one, list)), None)
    items = value if isinstance(value, list) else []
    return [{"text": item} if isinstance(item, str) else item for item in items]


def has_text(reading: str, overrides: Mapping[str, str]) -> bool:
    """Return whether a model that was to read a picture found text in it."""
    return reading.strip() not in {"", text("companion", overrides, "no_text").strip()}


def memory_form(facts: Sequence[Fact], overrides: Mapping[str, str]) -> Form:
    """Return the companion's form that asks which facts to remember, a text field for each."""
    fields = []
    for number, fact in enumerate(facts, 1):
        values = {"number": number, "confidence": f"{fact.confidence:.2f}"}
        label = text("companion", overrides, "confirm_label", **values)
        fields.append(FormField(f"memory_{number}", label, value=fact.text))
    return Form(text("companion", overrides, "confirm_title"), tuple(fields))


def approved_facts(facts: Sequence[Fact], form: Form, answer: HumanAnswer) -> tuple[Fact, ...]:
    """Return the facts to remember after an answer to `memory_form`; none after a rejection.

    Emptied ones are left out, equal ones count once, edited ones are certain.
    """
    if answer.action == "reject":
        return ()
    kept: dict[str, Fact] = {}
    for value, fact in zip(form_values(form, answer).values(), facts, strict=True):
        stated = str(value or "").strip()[:LONGEST_FACT]
        if stated:
            kept.setdefault(stated, fact if stated == fact.text else Fact(stated, type=fact.type))
    return tuple(kept.values())
