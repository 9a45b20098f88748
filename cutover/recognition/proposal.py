"""A dialect for a stream that no built-in one reads, found in one answer of it.

What is looked for: what names the events, which text grows, what ends the stream, what reports a
failure, and which values are ids or times, other ones in every answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from contract.wire import (
    EVERY,
    Dialect,
    ErrorPaths,
    EventDecoder,
    Framing,
    Paths,
    WireEvent,
    WireReader,
)
from cutover.recognition.answers import Answer
from cutover.recognition.leaves import (
    FLAGS,
    Leaf,
    LeafGroup,
    NamedEvents,
    key_of,
    leaves_of,
    name_events,
)
from cutover.recognition.reading import events_of
from cutover.recognition.texts import Texts, find_texts

_FAILURE = re.compile(r"error|fail|exception|abort", re.IGNORECASE)
_LITERAL = re.compile(r"[\w\[\]<>|.:/-]{1,40}")
_END_NAME = re.compile(
    r"(?:.*[._:/-])?(?:done|end|ended|eos|finish|finished|final|complete|completed|close|closed"
    r"|stop|stopped|success|succeeded)",
    re.IGNORECASE,
)
_REASONS: Final = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
_FINISH: Final = "finish"

_VOLATILE_KEY = re.compile(
    r"(?:.*_)?(?:id|ids|uuid|guid|ts|time|timestamp|created|updated|date|latency|elapsed|duration"
    r"|seq|sequence|sequence_number|ms|created_at|updated_at|started_at|ended_at|fingerprint)"
    r"|.*[a-z](?:Id|ID|At|Time|Ms|Seq|Timestamp|Duration|Latency)"
)
_VOLATILE_VALUE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:[a-z]+[_-])*(?=[\w-]*\d)[0-9A-Za-z]{12,}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*",
    re.ASCII,
)
"""A UUID; an id such as `chatcmpl-8f3kq2…`; a moment."""

NO_END: Final = (
    "no event ends the stream, its body does: a crash that closes the connection properly looks "
    "like an end"
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A dialect, and what one answer leaves open about it."""

    dialect: Dialect
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _End:
    """What ends a stream: an event, a payload, a part of one, or nothing but its body."""

    terminal: tuple[str, ...] = ()
    parts: Mapping[str, Paths] | None = None
    doubts: tuple[str, ...] = ()


def propose(answer: Answer, framing: Framing, sent: object = None) -> Proposal:
    """Propose a dialect for an answer that is framed as server-sent events or lines of JSON.

    `sent` is the request's body: what it holds is no text of the answer.
    """
    reader = WireReader(EventDecoder(Dialect(framing=framing)))
    events = [event for _, event in events_of(reader, answer)]
    literal = _literal(events)
    read = [event for event in events if isinstance(event.value, dict | list)]
    if 2 * len(read) < len(events):
        return _of_plain_payloads(events, literal, framing)
    echoed = frozenset(text for _, text in leaves_of(sent) if isinstance(text, str))
    named = name_events(read, framing)
    texts = find_texts(named.groups, echoed)
    end = _end_of(named, literal, answer)
    failures = tuple(name for name in named.groups if _FAILURE.search(name)) or ("error",)
    by_flag = named.names.path in FLAGS
    dialect = Dialect(
        framing=framing,
        empty="ignore",
        event=named.names,
        growth=texts.growth,
        text={EVERY: texts.main.path} if by_flag and texts.main else texts.table(),
        reasoning=texts.reasoning_table(),
        terminal=end.terminal,
        parts=dict(end.parts or {}),
        errors=ErrorPaths(events=failures, code=_code(named.groups, failures)),
        ignore=_ignored(named, texts, echoed, end),
    )
    other = len(events) - len(read) - bool(literal)
    torn = (f"{other} of {len(events)} events are no JSON objects: nothing reads them",)
    doubts = (*(torn if other else ()), *_doubts_of(texts), *end.doubts)
    return Proposal(dialect, (*doubts, *_counted(named, texts, dialect)))


def _literal(events: Sequence[WireEvent]) -> str:
    """Return the last payload if it alone is a word and no JSON object, as `[DONE]`; else ""."""
    if len(events) == 1 or isinstance(events[-1].value, dict):
        return ""
    data = events[-1].data.strip()
    text = data.decode("utf-8", "replace")
    once = sum(event.data.strip() == data for event in events) == 1
    is_payload = isinstance(events[-1].value, list) and isinstance(events[-2].value, list)
    return text if once and not is_payload and _LITERAL.fullmatch(text) else ""


def _of_plain_payloads(events: Sequence[WireEvent], literal: str, framing: Framing) -> Proposal:
    """Propose a dialect of payloads that are the text itself."""
    names = Counter(event.sse_name or "message" for event in events)
    ((text, _),) = names.most_common(1)
    last = events[-1].sse_name or "message"
    doubts = []
    terminal: tuple[str, ...] = ()
    if last != text and names[last] == 1:
        terminal = (last,)
    elif literal.startswith(("[", "<")) or _END_NAME.fullmatch(literal):
        terminal = (literal,)
    else:
        doubts.append(NO_END)
    if any(isinstance(event.value, str) for event in events):
        doubts.append("its pieces are JSON strings: their quotes and cuts are compared, too")
    dialect = Dialect(
        framing=framing,
        payload="text",
        text={} if len(names) == 1 else {text: "data"},
        terminal=terminal,
        errors=ErrorPaths(events=tuple(filter(_FAILURE.search, names)) or ("error",)),
    )
    return Proposal(dialect, tuple(doubts))


def _end_of(named: NamedEvents, literal: str, answer: Answer) -> _End:
    """Find the event that ended a stream: the last, once, where others have other names."""
    if answer.end != "complete":
        why = "broke off" if answer.end == "lost" else "had not ended"
        return _End(doubts=(f"the answer {why}: what ends a stream is not known",))
    if literal:
        return _End((literal,))
    order = named.order
    last, behind = order[-1], ""
    if order.count(last) == 1 and len(named.groups) > 1:
        if _END_NAME.fullmatch(last) or _is_bare(named, last):
            return _End((last,))
        # A wrong end would break off good streams: one that is missing hides some crashes only.
        behind = f"; {last!r} came last: name it in terminal if every stream ends with it"
    for path, values in named.groups[last].leaves.items():
        if key_of(path) in _REASONS and [held for _, held in values if held is not None]:
            said = [number for number, held in values if held is not None]
            if said == [len(order) - 1]:
                return _End((_FINISH,), {_FINISH: path})
    return _End(doubts=(NO_END + behind,))


def _is_bare(named: NamedEvents, name: str) -> bool:
    """Whether events of a name say nothing but that, as an end does."""
    return all(
        path == named.names.path or _volatile(path, [value for _, value in values])
        for path, values in named.groups[name].leaves.items()
    )


def _code(groups: Mapping[str, LeafGroup], failures: Sequence[str]) -> Paths:
    """Find where a failure's code stands, if one was seen."""
    for name in failures:
        for path in groups[name].leaves if name in groups else ():
            if key_of(path) in {"code", "type"}:
                return path
    return "code"


def _ignored(
    named: NamedEvents, texts: Texts, echoed: frozenset[str], end: _End
) -> dict[str, tuple[str, ...]]:
    """List the values that do not count: ids, times, and what stands beside pieces of text.

    An event is a mere piece of text where nothing else is left in it.
    """
    found: dict[str, list[str]] = {}
    for name, group in named.groups.items():
        main = texts.main
        pieces = main is not None and name == main.name and len(main.pieces) > 1
        for path, values in group.leaves.items():
            read = {named.names.path, *(end.parts or {}).values()}
            if path in read or texts.holds(name, path):
                continue
            held = [value for _, value in values]
            usual = pieces and 2 * len(held) >= group.count
            beside = usual and (len(set(map(str, held))) == 1 or _counts_up(held))
            if beside or (_volatile(path, held) and not echoed.issuperset(map(str, held))):
                found.setdefault(name, []).append(path)
    shared = _in_all(found, named.groups)
    table = {name: tuple(it for it in paths if it not in shared) for name, paths in found.items()}
    everywhere = {EVERY: tuple(shared)} if shared else {}
    return everywhere | {name: paths for name, paths in table.items() if paths}


def _in_all(found: Mapping[str, Sequence[str]], groups: Mapping[str, LeafGroup]) -> list[str]:
    """List the paths that do not count wherever they stand, if that is in several events."""
    paths = dict.fromkeys(path for listed in found.values() for path in listed)
    holders = {path: [name for name, it in groups.items() if path in it.leaves] for path in paths}
    return [
        path
        for path, names in holders.items()
        if len(names) > 1 and all(path in found.get(name, ()) for name in names)
    ]


def _counts_up(held: Sequence[Leaf]) -> bool:
    numbers = [value for value in held if isinstance(value, int) and not isinstance(value, bool)]
    rising = all(one < other for one, other in pairwise(numbers))
    return len(numbers) == len(held) > 1 and rising


def _volatile(path: str, held: Sequence[Leaf]) -> bool:
    if all(isinstance(value, str) and _VOLATILE_VALUE.fullmatch(value) for value in held):
        return True
    return bool(_VOLATILE_KEY.fullmatch(key_of(path))) and any(
        value not in (None, "", False, True) for value in held
    )


def _doubts_of(texts: Texts) -> list[str]:
    if texts.main is None:
        return ["no text was found in it: no takeover in mid-stream, and events alone are compared"]
    doubts = []
    if len(texts.main.pieces) == 1:
        doubts.append("its text came in one piece: whether it grows, and how, is not known")
    doubts += [
        f"{place.name!r} holds a text, too, at {place.path}: it counts as part of that event"
        for place in texts.others
    ]
    return doubts


def _counted(named: NamedEvents, texts: Texts, dialect: Dialect) -> list[str]:
    """Name what varies beside the pieces of the text, so that they do not join."""
    if texts.main is None or len(texts.main.pieces) == 1:
        return []
    name = texts.main.name
    ignored = {*dialect.ignore.get(EVERY, ()), *dialect.ignore.get(name, ())}
    left = [
        path
        for path, values in named.groups[name].leaves.items()
        if path not in {*ignored, *dialect.parts.values(), named.names.path}
        and not texts.holds(name, path)
        and 2 * len(values) >= named.groups[name].count
        and any(value not in {None, ""} for _, value in values)
    ]
    return [
        f"{path} stands beside pieces of the text and varies: where they are cut counts, unless "
        "ignore names it"
        for path in left
    ]
