"""Which differences follow from an earlier one: three sentences, and everything else is a cause."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from compare.differences.difference import Because, Difference
from compare.differences.runs import RunCall
from compare.differences.values import readable

_SHORTEST_QUOTE: Final = 2
_SAID: Final = frozenset({"text", "reasoning", "event_missing", "event_added", "event_changed"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference with what it may follow from, or have followed by.

    `tail`: a run has nothing more behind it, and the other has. `call` is the call that differs,
    `answered` whether its answer is another one, too, for that.
    """

    difference: Difference
    tail: bool = False
    call: RunCall | None = None
    answered: bool = False


def explain(found: Sequence[Finding]) -> tuple[Difference, ...]:
    """Return differences, which are in order of time, each with the sentence that explains it."""
    return tuple(
        msgspec.structs.replace(one.difference, because=_because(one, place, found))
        for place, one in enumerate(found)
    )


def _because(one: Finding, place: int, found: Sequence[Finding]) -> Because:
    what = one.difference
    if what.kind == "outcome":
        # A call that the tape does not hold ends a run that plays.
        return "missing_call" if (any(map(_unheard, found)) and "tape_miss" in what.shape) else ""
    if (
        one.tail
        and not _unheard(one)
        and any(other.difference.kind in {"outcome", "grammar"} for other in found)
    ):
        return "earlier_end"
    before = [other for other in found[:place] if other.call is not None and not other.tail]
    asked = [other for other in before if other.answered and other.call and other.call.model]
    if what.kind in _SAID | {"call_changed", "call_missing"} and any(
        (other.difference.name, other.difference.path) != (what.name, what.path) for other in asked
    ):
        return "changed_request"
    if any(_quotes(what, other) for other in before if other.answered):
        return "missing_call"
    return ""


def _unheard(one: Finding) -> bool:
    return one.call is not None and one.call.entry is None


def _quotes(what: Difference, other: Finding) -> bool:
    """Whether what differs contains what a call came back with."""
    held = f"{what.legacy or ''} {what.graph or ''}"
    result = other.call.result.decode("utf-8", "replace") if other.call else ""
    return any(leaf in held for leaf in _leaves(readable(result)))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    elif not isinstance(value, bool | None) and len(text := str(value)) >= _SHORTEST_QUOTE:
        yield text
