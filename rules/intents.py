"""What a user feels and wants, as rules tell it in the companion, pipeline and ops flows."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from rules.flows.companion import CompanionEmotion, Feeling
from rules.risk import Instruction

_LEXICONS: Final[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "lexicons.toml").read_text("utf-8")
)
_READ: Final = 2_048
"""Characters of a message in which its intent and its emotion are looked for."""


def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of the lexicons, with those that it names put in their places."""
    parts = _LEXICONS["patterns"]
    return re.compile(re.sub(r"<<(\w+)>>", lambda part: parts[part[1]], text), re.IGNORECASE)


_PATTERNS: Final = {name: _pattern(text) for name, text in _LEXICONS["patterns"].items()}

INTENTS: Final[Mapping[str, Mapping[str, str]]] = _LEXICONS["intents"]
"""`words` of each intent, and its `line` for the companion's prompt; the first that fits counts."""
_WORDS: Final = {
    intent: re.compile(rf"(?<![a-z])(?:{one['words']})(?![a-z])") for intent, one in INTENTS.items()
}


def intent_of(message: str) -> str:
    """Return the name of a message's intent; small talk is `chat`."""
    read = message[:_READ].lower()
    return next((intent for intent, words in _WORDS.items() if words.search(read)), "chat")


def intent_snippet(message: str) -> str:
    """Return the line for the companion's prompt about a message's intent."""
    return INTENTS[intent_of(message)]["line"]


def wishes_to_end(message: str) -> bool:
    """Return whether the last clause of a message is a goodbye and nothing more."""
    clauses = [clause.strip() for clause in _PATTERNS["clause"].split(message[-256:])]
    last = next((clause for clause in reversed(clauses) if clause), "")
    return _PATTERNS["goodbye"].fullmatch(last) is not None


def needs_memory(answer: str) -> bool:
    """Return whether the answer to `memory_check` asks for memories; unclear is no."""
    return "需要检索" in answer and "不需要" not in answer


_LONGEST_WISH: Final = 200
_WISHES: Final = [(worker, action, _pattern(text)) for worker, action, text in _LEXICONS["wishes"]]


class Preprocessed(msgspec.Struct, frozen=True):
    """A request with its references resolved, and the instruction that rules are certain of."""

    text: str
    instruction: Instruction | None = None


def preprocess(message: str, items: Sequence[str]) -> Preprocessed:
    """Resolve references to `items`, those of the last result, and read the request's intent.

    A reference to an item that is not there stays, and makes the intent uncertain.
    """
    reference = _PATTERNS["reference"]
    whole = reference.sub(lambda found: _item(found, items), message).strip()
    return Preprocessed(whole, None if reference.search(whole) else _instruction(whole))


def _item(found: re.Match[str], items: Sequence[str]) -> str:
    which = next(one for one in found.groups() if one).lower()
    place: int = _LEXICONS["places"].get(which) or int(which)
    index = place - 1 if place > 0 else len(items) - 1
    return items[index] if 0 <= index < len(items) else found.group()


def _instruction(request: str) -> Instruction | None:
    bare = _PATTERNS["courtesy"].sub("", request)
    for worker, action, wish in _WISHES if len(request) <= _LONGEST_WISH else ():
        if found := wish.fullmatch(bare):
            args: dict[str, Any] = found.groupdict()
            if "port" in args:
                args["port"] = int(args["port"])
            return Instruction(worker, action, args)
    return None


def items_of(data: Any) -> tuple[str, ...]:
    """Return the names in a result that lists things, in its order; later turns refer to them.

    `data` is a list of objects, or an object with one such list.
    """
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = lists[0] if len(lists) == 1 else None
    rows = data[:100] if isinstance(data, list) else []
    if not all(isinstance(row, dict) for row in rows):
        return ()
    keys = ("name", "path", "id", "pid")
    return tuple(str(next((row[key] for key in keys if key in row), "")) for row in rows)


LEXICON: Final[Mapping[Feeling, str]] = _LEXICONS["emotions"]
"""Words by what they show; where two feelings are even, the one that stands first wins."""

_NEAR: Final = 12
"""Characters before a word in which it is denied, or made stronger or weaker."""

_FEELINGS: Final = {word: feeling for feeling, listed in LEXICON.items() for word in listed.split()}
_FEELING: Final = re.compile(
    "|".join(
        rf"\b{word}\b" if word.isascii() else word
        for word in sorted(_FEELINGS, key=lambda word: (-len(word), word))
    )
)
_OPPOSITE: Final[Mapping[Feeling, Feeling]] = {"joy": "sadness", "affection": "disgust"}
_WEAK, _PLAIN, _STRONG = 0.3, 0.55, 0.8
_LOUD: Final = 0.1

CALM: Final = CompanionEmotion("neutral", 0.0, 0.5)
"""A message in which no word shows a feeling."""


def emotion_of(message: str) -> CompanionEmotion:
    """Return the emotion of a message; intensity and confidence from 0 to 1, in hundredths."""
    found: dict[Feeling, list[float]] = {}
    read = message[:_READ].lower()
    for hit in _FEELING.finditer(read):
        before = _PATTERNS["clause"].split(read[max(0, hit.start() - _NEAR) : hit.start()])[-1]
        feeling: Feeling | None = _FEELINGS[hit.group()]
        strength = _STRONG if _PATTERNS["stronger"].search(before) else _PLAIN
        if _PATTERNS["weaker"].search(before):
            strength = _WEAK
        if _PATTERNS["denial"].search(before):
            feeling, strength = _OPPOSITE.get(_FEELINGS[hit.group()]), _WEAK
        if feeling is not None:
            found.setdefault(feeling, []).append(strength)
    if not found:
        return CALM
    primary = max((one for one in LEXICON if one in found), key=lambda one: sum(found[one]))
    loud = _LOUD if "!" in read or "！" in read else 0.0
    total, hits = sum(map(sum, found.values())), sum(map(len, found.values()))
    intensity = min(1.0, max(found[primary]) + loud)
    confidence = sum(found[primary]) / total * hits / (hits + 0.5)
    return CompanionEmotion(primary, round(intensity, 2), round(confidence, 2))
