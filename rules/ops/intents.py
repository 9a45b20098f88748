"""What a user wants of the workers, as far as rules can tell: intents, and what they refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from contract.stores import Turn, storable
from contract.workers import WorkerArgument
from rules.ops.instructions import DEPLOYMENT, MOST_INSTRUCTIONS, ROLLBACK, Instruction

CERTAIN: Final = 0.9
"""Confidence from which the model is not asked for the first step."""
_MOST_ITEMS: Final = 60
_LONGEST_ITEM: Final = 200
"""Items of a result, and characters of each, that later turns refer to: they fit into a turn."""

_ENGLISH_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)
_CHINESE_NUMBERS: Final = "一二三四五六七八九十"
# "the last hour" and "the first time" refer to no result.
_KIND: Final = (
    r"(?: (?:one|container|file|process|disk)\b"
    r"|(?=\s*(?:[,.;:!?'，。；：！？、)]|\Z)|\s(?:and|or|too|please|now|again)\b))"
)
_OTHER_KINDS: Final = r"(?!小时|钟头|月|星期|礼拜|季度|工作日|年|问题|步骤)"
_REFERENCE: Final = re.compile(
    rf"\bthe (?P<word>{'|'.join(_ENGLISH_ORDINALS)}|last){_KIND}"
    rf"|\bthe (?P<number>[1-9]\d{{0,2}})(?:st|nd|rd|th){_KIND}"
    r"|(?:容器|文件)?(?:第(?P<chinese>[一二三四五六七八九十]|[1-9]\d{0,2})|(?P<last>最后一))"
    rf"(?:个|条|项){_OTHER_KINDS}(?:容器|文件|进程|磁盘)?",
    re.IGNORECASE,
)
_POLITE: Final = re.compile(
    r"^(?:please|could you|can you|would you|请你?|麻烦你?|帮我|给我)[\s,，]*"
    r"|[\s,，]*(?:please|now|吧|好吗)$",
    re.IGNORECASE,
)
_CLAUSES: Final = re.compile(r"[,，、;；]|\s+and\s+|以及|并且?|和")
_END: Final = re.compile(r"[\s.。!！?？]+\Z")

_LOOK: Final = r"(?:(?:check|show|list|get|how (?:is|are))(?: me)?(?: all)?(?: the)? )?"
_SEE: Final = r"(?:检查|查看|看看|看一下|查一下|列出|显示)?(?:一下)?(?:所有|全部)?的?"
# What "it" is, only the model can tell.
_NO_NAME: Final = r"(?!(?:it|this|that|them|all|everything|last|machine|server|host)(?![\w.-]))"
_NAME: Final = rf"(?P<name>{_NO_NAME}[A-Za-z0-9][\w.-]*)"
_ADDRESS: Final = r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<port>\d{1,5})"


class Intent(NamedTuple):
    """A wish that needs no model: a pattern of a whole clause; its groups are the arguments."""

    pattern: re.Pattern[str]
    worker: str
    action: str


INTENTS: Final = tuple(
    Intent(re.compile(pattern, re.IGNORECASE), worker, action)
    for pattern, worker, action in (
        (rf"{_LOOK}dis[ck]s?(?: space| usage)?", "system", "disk"),
        (rf"{_SEE}(?:磁盘|硬盘)(?:空间|使用情况|占用)?", "system", "disk"),
        (rf"{_LOOK}(?:memory|ram)(?: usage)?", "system", "memory"),
        (rf"{_SEE}内存(?:使用情况|占用)?", "system", "memory"),
        (rf"{_LOOK}(?:running )?processes", "system", "processes"),
        (rf"{_SEE}进程", "system", "processes"),
        (rf"{_LOOK}(?:large|largest|big|biggest) files", "system", "large_files"),
        (rf"{_SEE}最?大的?文件", "system", "large_files"),
        (
            r"delete (?:the )?temporary files? (?P<pattern>[\w*?.-]*[*?][\w*?.-]*)",
            *("system", "delete_temporary"),
        ),
        (r"删除临时文件\s*(?P<pattern>[\w*?.-]*[*?][\w*?.-]*)", "system", "delete_temporary"),
        (
            rf"(?:(?:can|is) )?(?:you )?(?:reach )?{_ADDRESS}(?: (?:be reached|reachable|up))?",
            *("network", "reach"),
        ),
        (
            rf"(?:能否|能不能|是否能|检查)?(?:连接|连通|访问)?到?\s*{_ADDRESS}\s*(?:能连上|通不通)?",
            *("network", "reach"),
        ),
        (rf"{_LOOK}(?:running )?containers", "container", "list"),
        (rf"{_SEE}容器", "container", "list"),
        (rf"{_LOOK}logs? (?:of|from|for) (?:the )?(?:container )?{_NAME}", "container", "logs"),
        (rf"{_SEE}(?:容器)?\s*{_NAME}\s*的日志", "container", "logs"),
        (rf"restart (?:the )?(?:container )?{_NAME}(?: container)?", "container", "restart"),
        (rf"重启(?:容器)?\s*{_NAME}", "container", "restart"),
        (r"deploy(?: (?:the )?release (?P<release>[A-Za-z0-9][\w.-]*))?", *DEPLOYMENT),
        (r"部署(?:版本\s*(?P<release>[A-Za-z0-9][\w.-]*))?", *DEPLOYMENT),
        (r"roll ?back(?: the (?:release|deployment))?", "deploy", ROLLBACK),
        (r"回滚(?:部署|版本)?", "deploy", ROLLBACK),
    )
)
"""The first one that matches decides."""


class Understood(msgspec.Struct, frozen=True):
    """A message with its references resolved, and what it asks for; `confidence` from 0 to 1."""

    text: str
    instructions: tuple[Instruction, ...] = ()
    confidence: float = 0.0

    @property
    def certain(self) -> bool:
        """Whether the first step is taken without the model."""
        return self.confidence >= CERTAIN


def understand(message: str, earlier: Sequence[Turn]) -> Understood:
    """Resolve references to the last result, and read what the message asks for."""
    clauses = _clauses(message)
    if len(clauses) > 1 and _REFERENCE.search(message):
        return Understood(message)  # the first of what another clause lists is not known yet
    items, missing = last_items(earlier), False

    def item(found: re.Match[str]) -> str:
        nonlocal missing
        index = _index(found)
        named = items[index] if -len(items) <= index < len(items) else ""
        missing = missing or not named
        return named or found.group()

    resolved = _REFERENCE.sub(item, message)
    if len(clauses) == 1:
        clauses = [_bare(resolved)]  # a name may hold what separates clauses
    wishes = [wish for clause in clauses if (wish := _wish(clause)) is not None]
    if not wishes or missing or len(wishes) > MOST_INSTRUCTIONS:
        return Understood(resolved)
    confidence = 0.95 if len(wishes) == len(clauses) else 0.5
    return Understood(resolved, tuple(wishes), confidence)


def last_items(earlier: Sequence[Turn]) -> tuple[str, ...]:
    """Return the names in the newest result that listed any, in its order."""
    for turn in reversed(earlier):
        listed = (turn.data or {}).get("items")
        if isinstance(listed, list) and listed:
            return tuple(str(one) for one in listed)
    return ()


def _index(found: re.Match[str]) -> int:
    if found["last"] or (found["word"] or "").lower() == "last":
        return -1
    if found["word"]:
        return _ENGLISH_ORDINALS.index(found["word"].lower())
    number = found["number"] or found["chinese"]
    return int(number) - 1 if number.isdecimal() else _CHINESE_NUMBERS.index(number)


def _clauses(message: str) -> list[str]:
    return [clause for part in _CLAUSES.split(message) if (clause := _bare(part))]


def _bare(clause: str) -> str:
    """Return a clause without courtesy and punctuation."""
    return _POLITE.sub("", _POLITE.sub("", _END.sub("", clause).strip())).strip()


def _wish(clause: str) -> Instruction | None:
    for intent in INTENTS:
        if found := intent.pattern.fullmatch(clause):
            given = {name: value for name, value in found.groupdict().items() if value}
            args: dict[str, WorkerArgument] = {
                name: int(value) if name == "port" else value for name, value in given.items()
            }
            return Instruction(intent.worker, intent.action, args)
    return None


def items_of(data: Any) -> tuple[str, ...]:
    """Return the names of the rows a result lists, in its order; "" for a row without a name.

    Lines of text are no rows.
    """
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = lists[0] if len(lists) == 1 else None
    rows = data[:_MOST_ITEMS] if isinstance(data, list) else []
    return tuple(map(_named, rows)) if all(isinstance(row, dict) for row in rows) else ()


def _named(row: Mapping[str, Any]) -> str:
    name = next((row[key] for key in ("name", "path", "id", "pid") if key in row), "")
    named = str(name) if isinstance(name, str | int) else ""
    return named if len(named) <= _LONGEST_ITEM and storable(named) else ""
