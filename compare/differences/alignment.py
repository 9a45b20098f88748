"""Which events and calls of two runs belong together."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from compare.differences.runs import Event
from compare.differences.values import MOST_ALIGNED


class Comparable(NamedTuple):
    """What of an event is compared, and the `key` by which it is aligned."""

    event: Event
    key: str
    value: Any


def take_equal(ours: dict[int, str], theirs: dict[int, str]) -> list[tuple[int, int]]:
    """Take what is equal out of texts by place, the first with the first; return the pairs."""
    waiting: dict[str, list[int]] = {}
    for j, text in theirs.items():
        waiting.setdefault(text, []).append(j)
    pairs = [(i, same.pop(0)) for i, text in ours.items() if (same := waiting.get(text))]
    for i, j in pairs:
        del ours[i], theirs[j]
    return pairs


def paired(ours: Sequence[Comparable], theirs: Sequence[Comparable]) -> Iterator[tuple[int, int]]:
    """Yield the places of events that belong together: of the same key, or else of the same name.

    These are paired where they stand in each other's place; so are all of long runs.
    """
    begin, least = 0, min(len(ours), len(theirs))
    while begin < least and ours[begin].key == theirs[begin].key:
        yield begin, begin
        begin += 1
    keys, its = ([one.key for one in run[begin:]] for run in (ours, theirs))
    script: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(keys), 0, len(its))]
    if max(len(keys), len(its)) <= MOST_ALIGNED:
        script = SequenceMatcher(None, keys, its, autojunk=False).get_opcodes()
    for tag, start, end, other_start, other_end in script:
        i, j, stop, other_stop = (begin + at for at in (start, other_start, end, other_end))
        while i < stop and j < other_stop:
            name = ours[i].event.name
            if tag == "equal" or name == theirs[j].event.name:
                yield i, j
                i, j = i + 1, j + 1
            elif any(name == one.event.name for one in theirs[j:other_stop]):
                j += 1
            else:
                i += 1


def last_before_closing(
    pairs: Sequence[tuple[int, int]], ours: int, theirs: int
) -> tuple[int, int]:
    """Return the last pair of events, those apart that close both streams, whatever came before."""
    for closing, (i, j) in enumerate(reversed(pairs), 1):
        if (i, j) != (ours - closing, theirs - closing):
            return i, j
    return -1, -1
