"""Generated ids, and moments in prompts: equal by their order of appearance in a pair of runs."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from cutover.chat_form import encode

_DAY: Final = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)?"
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# A digest stands for data, such as a picture, and is no id.
_HEX: Final = r"(?<!blake2b=)(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}"
_FOLDED: Final = re.compile(
    rf"(?<![0-9A-Za-z])(?:(?P<moment>{_DAY}[T ]{_CLOCK}{_ZONE})|(?P<day>{_DAY})"
    rf"|(?P<clock>{_CLOCK}{_ZONE})|(?P<uuid>{_UUID})|(?P<hex>{_HEX}))(?![0-9A-Za-z])"
)

_IDS: Final = frozenset({"uuid", "hex"})


def generated(text: str) -> frozenset[str]:
    """Return the ids in a text, in lower case; dates and times are none."""
    found = (one for one in _FOLDED.finditer(text) if one.lastgroup in _IDS)
    return frozenset(one[0].lower() for one in found)


class Folding:
    """Which of graph's ids and moments stand for which of legacy's.

    Moments are folded in requests to models alone, into which code writes when it ran: what a
    client is told, or a tool is to do, is meant.

    It grows pair by pair, in the order in which values are compared; the first pairing counts, so
    that one id in the place of two is a difference. An id that the other run has, too, is no new
    one: `known` returns the ids of legacy's run and of graph's, and is asked once where needed.
    `kinds` are those of ids that the reader of a stream has numbered, such as `message 2`: one that
    is missing moves the numbers of all behind it.
    """

    def __init__(
        self, known: Callable[[], tuple[frozenset[str], frozenset[str]]], kinds: Iterable[str] = ()
    ) -> None:
        self._known = known
        self._numbered = re.compile(rf'"({"|".join(map(re.escape, kinds)) or "(?!)"}) \d+"')
        self._ids: tuple[frozenset[str], frozenset[str]] | None = None
        self._legacy: dict[str, str] = {}
        self._graph: dict[str, str] = {}
        self.count = 0
        """Values that were equal but for an id, a date or a time."""

    def skeleton(self, value: Any) -> str:
        """Return a value's JSON with a mark of its kind in the place of each id, date and time."""
        text = _FOLDED.sub(lambda found: f"\x01{found.lastgroup}\x01", encode(value).decode())
        return self._numbered.sub(r'"\1 #"', text)

    def fold(self, legacy: Any, graph: Any, *, moments: bool = False) -> Any:
        """Return graph's value with legacy's ids where these stand for its own; also `moments`."""
        match legacy, graph:
            case str(), str():
                numbers = [self._numbered.fullmatch(f'"{one}"') for one in (legacy, graph)]
                if numbers[0] and numbers[1] and numbers[0][1] == numbers[1][1]:
                    return legacy if self._stands("number", legacy, graph) else graph
                return graph if legacy == graph else self._text(legacy, graph, moments=moments)
            case dict(), dict():
                meant = {"digest"} if "bytes" in graph else set()  # stands for a body, is no id
                known = legacy.keys() - meant
                return {
                    key: self.fold(legacy[key], value, moments=moments) if key in known else value
                    for key, value in graph.items()
                }
            case list(), list() if len(legacy) == len(graph):
                pairs = zip(legacy, graph, strict=True)
                return [self.fold(one, other, moments=moments) for one, other in pairs]
            case _:
                return graph

    def _text(self, legacy: str, graph: str, *, moments: bool) -> str:
        ours, theirs = list(_FOLDED.finditer(legacy)), list(_FOLDED.finditer(graph))
        if not ours or self.skeleton(legacy) != self.skeleton(graph):
            return graph
        pieces: list[str] = []
        end = 0
        for one, other in zip(ours, theirs, strict=True):
            kind = str(one.lastgroup)
            folded = moments or kind in _IDS
            stands = folded and self._stands(kind, one[0].lower(), other[0].lower())
            self.count += stands and one[0] != other[0]
            pieces += (graph[end : other.start()], one[0] if stands else other[0])
            end = other.end()
        return "".join((*pieces, graph[end:]))

    def _stands(self, kind: str, legacy: str, graph: str) -> bool:
        """Whether graph's value may stand for legacy's, also from now on."""
        if legacy != graph and kind in _IDS:
            if legacy.isdigit() and graph.isdigit():
                return False  # numbers
            self._ids = self._ids or self._known()
            if legacy in self._ids[1] or graph in self._ids[0]:
                return False
        there = self._legacy.setdefault(legacy, graph), self._graph.setdefault(graph, legacy)
        return there == (graph, legacy)
