"""Where two values differ: DeepDiff's findings as paths without indices."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from importlib import import_module
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from cutover.chat_form import NotJson, decode, encode

MISSING: Final = object()
"""Stands for a value that is not there."""
MOST_BYTES: Final = 128 << 10
"""JSON of a value up to which places in it are looked for: a longer one differs as a whole."""
MOST_ALIGNED: Final = 2_000
"""Items of a list, or events, up to which they are aligned: one more moves no other."""
MOST_SHOWN: Final = 2_000
"""Characters of a value that a difference shows."""
_BEFORE: Final = 200
"""Of which so many stand before the first one that differs."""
_DEEPEST_SHAPE: Final = 8
_CALLS: Final = frozenset({"type", "kind", "event", "action", "tool", "name"})
"""Keys by which a value calls itself."""
_WORD: Final = re.compile(r"(?![A-Z][a-z]*\Z)[A-Za-z_:-]{1,64}")
"""What a program calls something: no name of a person, no number."""


class ValueChange(NamedTuple):
    """Two values at one path; `MISSING` where nothing stands there."""

    path: str
    legacy: Any
    graph: Any


def readable(text: str | bytes) -> Any:
    """Return the value of a JSON text; a text that is none, or too deep, is itself the value."""
    try:
        value = decode(text)
        encode(value)
    except (NotJson, RecursionError):
        return text if isinstance(text, str) else text.decode("utf-8", "replace")
    return value


def changes(legacy: Any, graph: Any) -> list[ValueChange]:
    """Return where two unequal values differ, the first of each path and shape of what was added.

    The whole where unknown.
    """
    found: dict[tuple[str, str], ValueChange] = {}
    try:
        for path, ours, theirs in _narrowed(legacy, graph, ""):
            for one in _deep(path, ours, theirs):
                key = one.path.removeprefix("."), shape(one.legacy, one.graph)
                found.setdefault(key, one._replace(path=key[0]))
    except (RecursionError, ValueError):
        found.clear()
    return [*found.values()] or [ValueChange("", legacy, graph)]


def _narrowed(legacy: Any, graph: Any, path: str) -> Iterator[ValueChange]:
    """Yield the parts that differ as far as it is plain which belong together.

    DeepDiff finds the same, and takes a hundred times as long for what is equal.
    """
    match legacy, graph:
        case dict(), dict() if legacy and graph:
            for key in dict.fromkeys((*legacy, *graph)):
                ours, theirs = legacy.get(key, MISSING), graph.get(key, MISSING)
                if ours != theirs:
                    yield from _narrowed(ours, theirs, f"{path}.{key}")
        case list(), list() if max(len(legacy), len(graph)) <= MOST_ALIGNED:
            ours, theirs = ([encode(one) for one in items] for items in (legacy, graph))
            script = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
            for tag, i, i_end, j, j_end in script:
                if tag != "equal":
                    pairs = zip_longest(legacy[i:i_end], graph[j:j_end], fillvalue=MISSING)
                    for one, other in pairs:
                        yield ValueChange(f"{path}[]", one, other)
        case _:
            yield ValueChange(path, legacy, graph)


def _deep(path: str, legacy: Any, graph: Any) -> Iterator[ValueChange]:
    holders = isinstance(legacy, dict | list) and isinstance(graph, dict | list)
    if not holders or max(len(encode(legacy)), len(encode(graph))) > MOST_BYTES:
        yield ValueChange(path, legacy, graph)
        return
    # It brings numpy, which a router that meets no value that differs does without.
    absent, deepdiff = import_module("deepdiff.helper").notpresent, import_module("deepdiff")
    options = {"ignore_numeric_type_changes": True, "threshold_to_diff_deeper": 0}
    tree = deepdiff.DeepDiff(legacy, graph, view="tree", **options)
    for level in (level for kind in tree.values() for level in kind):
        steps = level.path(output_format="list")
        below = "".join("[]" if isinstance(step, int) else f".{step}" for step in steps)
        ours, theirs = (MISSING if one is absent else one for one in (level.t1, level.t2))
        yield ValueChange(path + below, ours, theirs)


def shown(legacy: Any, graph: Any) -> tuple[str | None, str | None]:
    """Return two values as JSON texts; of long ones what stands around the first difference."""
    ours, theirs = ("" if one is MISSING else encode(one).decode() for one in (legacy, graph))
    if max(len(ours), len(theirs)) > MOST_SHOWN:
        begin = max(0, common(ours, theirs) - _BEFORE)
        ours, theirs = _cut(ours, begin), _cut(theirs, begin)
    return ours or None, theirs or None


def _cut(text: str, begin: int) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    left, right = "…" if begin else "", "…" if len(text) > begin + MOST_SHOWN else ""
    return encode(f"{left}{text[begin : begin + MOST_SHOWN]}{right}").decode()


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many characters two texts, or how many words, have in common at the beginning."""
    both = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in both if a != b), min(len(one), len(other)))


def shape(legacy: Any, graph: Any) -> str:
    """Return the shape of what one alone has, or has in place of a value of another kind.

    Its keys and types, such as `{id:str,items:[{price:int}]}`; at the top, a word by which it calls
    itself stands there as it is: `{name:search}`.
    """
    if MISSING in (legacy, graph):
        return _shape(legacy if graph is MISSING else graph)
    holders = [type(one) for one in (legacy, graph) if isinstance(one, dict | list)]
    return _shape(graph) if holders and holders != [type(legacy)] * 2 else ""


def _shape(value: Any, key: str = "", depth: int = 0) -> str:
    match value:
        case dict() | list() if depth == _DEEPEST_SHAPE:
            return "…"
        case dict():
            fields = (f"{key}:{_shape(one, key, depth + 1)}" for key, one in sorted(value.items()))
            return "{" + ",".join(fields) + "}"
        case list():
            shapes = dict.fromkeys(_shape(one, "", depth + 1) for one in value[:100])
            return "[" + "|".join(shapes) + "]"
        case str() if depth == 1 and key in _CALLS and _WORD.fullmatch(value):
            return value
        case None:
            return "null"
        case _:
            return type(value).__name__
