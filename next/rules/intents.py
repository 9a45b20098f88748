"""What a user feels and wants, as rules tell it in the companion, pipeline and ops flows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from rules.flows.companion import CompanionEmotion, Feeling
from rules.risk import Instruction

_LEXICONS: Final = tomllib.loads((Path(__file__).parent / "lexicons.toml").read_text("utf-8"))
INTENTS: Final[Mapping[str, Mapping[str, str]]] = _LEXICONS["intents"]
"""`words` of each intent, and its `line` for the companion's prompt; the first that fits counts."""

_WORDS: Final = {
    intent: re.compile(rf"(?<![a-z])(?:{one['words']})(?![a-z])") for intent, one in INTENTS.items()
}
_READ: Final = 2_048


def intent_of(message: str) -> str:
    """Return the name of a message's intent; small talk is `chat`."""
    read = message[:_READ].lower()
    return next((intent for intent, words in _WORDS.items() if words.search(read)), "chat")


def intent_snippet(message: str) -> str:
    """Return the line for the companion's prompt about a message's intent."""
    return INTENTS[intent_of(message)]["line"]


_GOODBYE: Final = re.compile(
    r"(?:好的?|那|嗯|就|先)*(?:再见|拜拜|晚安|回头见|明天见|下次聊|不聊了|先这样|结束对话|我走了)"
    r"[了啦吧哦呀]*|(?:ok |okay |well )?(?:good ?bye|bye(?: bye)?|good ?night|see you(?: later)?)"
)
_CLAUSES: Final = re.compile(r"[\n,.;:!?~，。；：！？、…～]+")


def wishes_to_end(message: str) -> bool:
    """Return whether the last clause of a message is a goodbye and nothing more."""
    clauses = [clause.strip() for clause in _CLAUSES.split(message[-256:].lower())]
    last = next((clause for clause in reversed(clauses) if clause), "")
    return _GOODBYE.fullmatch(last) is not None


def needs_memory(answer: str) -> bool:
    """Return whether the answer to `memory_check` asks for memories; unclear is no."""
    return "需要检索" in answer and "不需要" not in answer


CERTAIN: Final = 0.9
"""Confidence from which the model is not asked for the first instruction."""
_SURE: Final = 0.95
_LONGEST_WISH: Final = 200

_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")
_NUMBERS: Final = "一二三四五六七八九十"
_REFERENCE: Final = re.compile(
    rf"\bthe (?P<word>{'|'.join(_ORDINALS)}|last) (?:one|container|file|process)\b"
    r"|(?:容器|文件|进程)?(?:第(?P<number>[一二三四五六七八九十]|[1-9]\d?)|(?P<last>最后一))"
    r"[个条项](?!月|小时|星期|问题)(?:容器|文件|进程)?",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    r"^\s*(?:please |could you |can you |请你?|麻烦你?|帮我)*"
    r"|(?: please|吧|一下)?[\s.。!！?？]*$",
    re.IGNORECASE,
)
_LOOK: Final = r"(?:(?:check|show|list|get)(?: me)?(?: all)?(?: the)? )?"
_SEE: Final = r"(?:检查|查看|看看|看一下|列出|显示)?(?:一下)?(?:所有|全部)?的?"
# What "it" is, only the model can tell.
_NO_NAME: Final = r"(?!(?:it|this|that|them|all|everything|containers?|server)(?![\w.-]))"
_NAME: Final = rf"(?:容器|container )?\s*{_NO_NAME}(?P<name>[A-Za-z0-9][\w.-]*)"
_ADDRESS: Final = r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<port>\d{1,5})"

WISHES: Final[Mapping[str, tuple[str, str]]] = {
    rf"{_LOOK}disk(?: space| usage)?|{_SEE}(?:磁盘|硬盘)(?:空间|使用情况)?": ("system", "disk"),
    rf"{_LOOK}memory(?: usage)?|{_SEE}内存(?:使用情况)?": ("system", "memory"),
    rf"{_LOOK}(?:running )?processes|{_SEE}进程": ("system", "processes"),
    r"delete (?:the )?temporary files|删除临时文件": ("system", "delete_temporary"),
    rf"(?:reach |check |检查)\s*{_ADDRESS}": ("network", "reach"),
    rf"{_LOOK}(?:running )?containers|{_SEE}容器": ("container", "list"),
    rf"(?:show )?(?:the )?logs of (?:the )?{_NAME}": ("container", "logs"),
    rf"{_SEE}{_NAME}\s*的日志": ("container", "logs"),
    rf"(?:restart (?:the )?|重启){_NAME}": ("container", "restart"),
    r"deploy|部署": ("deploy", "run"),
}
"""Whole requests that need no model, and their instruction; a pattern's groups are arguments."""


class Preprocessed(msgspec.Struct, frozen=True):
    """A request with its references resolved, and what it asks for as far as rules can tell."""

    text: str
    confidence: float = 0.0
    instruction: Instruction | None = None

    @property
    def certain(self) -> bool:
        """Whether the first instruction is taken without the model."""
        return self.instruction is not None and self.confidence >= CERTAIN


def preprocess(message: str, items: Sequence[str]) -> Preprocessed:
    """Resolve references to `items`, those of the last result, and read the request's intent.

    A reference to an item that is not there stays, and makes the intent uncertain.
    """
    whole = _REFERENCE.sub(lambda found: _item(found, items), message).strip()
    instruction = None if _REFERENCE.search(whole) else _instruction(whole)
    return Preprocessed(whole, _SURE if instruction else 0.0, instruction)


def _item(found: re.Match[str], items: Sequence[str]) -> str:
    word, number = (found["word"] or "").lower(), found["number"]
    if found["last"] or word == "last":
        index = len(items) - 1
    elif word:
        index = _ORDINALS.index(word)
    else:
        index = int(number) - 1 if number.isascii() else _NUMBERS.index(number)
    return items[index] if 0 <= index < len(items) else found.group()


def _instruction(request: str) -> Instruction | None:
    if len(request) > _LONGEST_WISH:
        return None
    bare = _COURTESY.sub("", request)
    for pattern, (worker, action) in WISHES.items():
        if found := re.fullmatch(pattern, bare, re.IGNORECASE):
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

_EITHER_END: Final = 1_024
"""Characters that are read at either end: what lies between is mostly pasted."""
_NEAR: Final = 12
"""Characters before a word in which it is denied, or made stronger or weaker."""

_FEELINGS: Final = {word: feeling for feeling, listed in LEXICON.items() for word in listed.split()}
_PATTERN: Final = re.compile(
    "|".join(
        rf"\b{word}\b" if word.isascii() else word
        for word in sorted(_FEELINGS, key=lambda word: (-len(word), word))
    )
)
_CLAUSE: Final = re.compile(r"[,.;:!?\n，。；：！？、…]")
_DENIAL: Final = re.compile(
    r"不(?![仅但过只])|没(?!想到)|别(?<!特别)|(?:\b(?:not|no|never)|n['’]t)\b"
)
_STRONGER: Final = re.compile(r"非常|特别|超|太|极|十分|真|好|很|\b(?:very|so|really|extremely)\b")
_WEAKER: Final = re.compile(r"有点|有些|一点|稍|略|\b(?:slightly|somewhat|a bit|a little)\b")
_OPPOSITE: Final[Mapping[Feeling, Feeling]] = {"joy": "sadness", "affection": "disgust"}
_WEAK, _PLAIN, _STRONG = 0.3, 0.55, 0.8
_LOUD: Final = 0.1

CALM: Final = CompanionEmotion("neutral", 0.0, 0.5)
"""A message in which no word shows a feeling."""


def emotion_of(message: str) -> CompanionEmotion:
    """Return the emotion of a message; intensity and confidence from 0 to 1, in hundredths."""
    found: dict[Feeling, list[float]] = {}
    read = message
    if len(message) > 2 * _EITHER_END:
        read = f"{message[:_EITHER_END]}\n{message[-_EITHER_END:]}"
    lowered = read.lower()
    for hit in _PATTERN.finditer(lowered):
        before = _CLAUSE.split(lowered[max(0, hit.start() - _NEAR) : hit.start()])[-1]
        feeling: Feeling | None = _FEELINGS[hit.group()]
        strength = _strength(before)
        if _DENIAL.search(before):
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


def _strength(before: str) -> float:
    if _WEAKER.search(before):
        return _WEAK
    return _STRONG if _STRONGER.search(before) else _PLAIN
