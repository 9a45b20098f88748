"""Dialects: how the streams of a service are read, declared in TOML.

A path names places in a payload: `choices[*].delta.content`, `[0].id`, `messages[-1].type`; `*` is
any key, `[*]` any index, `**` any number of steps. The dialects that come along stand in
`dialects/*.toml`; a file of a user's own has the same keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any, Final, Literal

import msgspec

from cutover.errors import Blame, CutoverError

Step = str | int
Place = tuple[Step, ...]
"""Keys and indices that lead to one value of a payload."""
Found = tuple[Any, Step, Place]
"""A value's holder, its key or index there, and its whole place."""
_STEP: Final = re.compile(r"(?:^|\.)(\*\*|\*|[^.\[\]*]+)|\[(\*|-?\d+)\]")
Path = Annotated[str, msgspec.Meta(pattern=rf"^(?!.*\*\*$)(?:{_STEP.pattern})+$")]
Names = str | tuple[str, ...]
Places = tuple[Path, ...]
_ANY_KEY, _ANY_INDEX, _ANY_DEPTH = "*", "[*]", "**"


class DialectRefused(CutoverError):
    """A dialect's file cannot be meant; `key` is the place in it, "" for the file itself."""

    def __init__(self, where: str, key: str, reason: str) -> None:
        super().__init__(f"{where}: {key}: {reason}" if key else f"{where}: {reason}")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are refused."""


class Naming(_Table, frozen=True, kw_only=True):
    """Where an event's name is: at `path`, else in its SSE `event:` line, else it is `default`.

    A name that no event is declared for counts as `default`. `marks` are payloads that are no JSON
    and name themselves.
    """

    path: Path = ""
    default: str = "message"
    marks: tuple[str, ...] = ()


class TextAt(_Table, frozen=True, kw_only=True):
    """Where a text grows: the first of the paths that leads to one counts, the others repeat it.

    `by` are paths to what tells texts of one channel apart, in order of appearance; "*": their
    place does. A `total` is the text so far, of which only what is new is added.
    """

    channel: str
    path: Path | Places
    by: Path | Places = ()
    growth: Literal["delta", "total"] = "delta"


class CallAt(_Table, frozen=True, kw_only=True):
    """Where tool calls grow: `at` each piece ("": the payload), all else below it."""

    at: Path = ""
    id: Path = ""
    index: Path = ""
    name: Path = ""
    arguments: Path = ""
    growth: Literal["delta", "total"] = "delta"


class EventRule(_Table, frozen=True, kw_only=True):
    """How events are read whose name matches one of `name` and whose values are those of `when`.

    The first rule that matches is the event's. What such an event says: a `preamble` says nothing
    of the answer; `finish` and `end` are of its ending; a `failure` reports one. An event with
    `texts`, `calls` or `counts` is a piece: what stands beside these is an annotation; at the
    paths of `counts` it counts. With `mark` all of it counts; `mark = false`: nothing does. One of
    `needs` must be there. `foreign` are places of a text that is not read, and what must be there
    instead.
    """

    name: Names
    when: dict[Path, str | int | bool | tuple[str, ...]] = {}
    says: Literal["preamble", "content", "finish", "end", "failure"] = "content"
    mark: bool | None = None
    texts: tuple[TextAt, ...] = ()
    calls: tuple[CallAt, ...] = ()
    counts: Places = ()
    needs: Places = ()
    foreign: dict[Path, Path] = {}
    omit: Places = ()

    def paths(self, dialect: Dialect) -> Paths:
        """Return all paths that are looked for in such an event."""
        texts = [path for one in self.texts for path in listed(one.path)]
        by = [path for one in self.texts for path in listed(one.by) if path != "*"]
        ids = [path for paths in dialect.ids.values() for path in paths]
        telling = {*texts, *(one.at for one in self.calls), *dialect.end.finish}
        dropped = {*dialect.omit, *self.omit, dialect.names.path}
        if self.piece:
            dropped.update(by, ids)
        checked = (*self.counts, *self.needs, *self.foreign, *self.foreign.values())
        every = (*telling, *dropped, *by, *ids, *checked, *dialect.failure.at)
        return Paths(every, frozenset(dropped), frozenset(telling))

    @property
    def piece(self) -> bool:
        """Whether what stands beside the declared places is an annotation."""
        return not self.mark and bool(self.texts or self.calls or self.counts)


class Ending(_Table, frozen=True, kw_only=True):
    """How a stream is known to be whole.

    `finish` are places of a reason to finish, `failing` the reasons that are failures. The `end`
    event must follow, unless the stream may end `unmarked`; or the end of the `body` is the end.
    """

    finish: Places = ()
    failing: tuple[str, ...] = ()
    unmarked: bool = False
    body: bool = False


class Reports(_Table, frozen=True, kw_only=True):
    """Where failures are reported: `at` in any event, besides the events that say `failure`.

    The first `code` and `message` found count. `world` and `configuration` are patterns of codes
    by which the service blames its model's provider, or a key; all else is the service's fault.
    What the router `says` where a stream fails that has begun: events, with `{code}` in them; where
    there are none, the connection is broken off.
    """

    says: tuple[str, ...] = ()

    at: Places = ()
    code: Places = ()
    message: Places = ()
    world: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()

    def blame(self, code: str) -> Blame:
        """Return whose fault a service says a failure is."""
        if any(fnmatchcase(code, pattern) for pattern in self.configuration):
            return "configuration"
        return "world" if any(fnmatchcase(code, pattern) for pattern in self.world) else "stack"


class TokensAt(_Table, frozen=True, kw_only=True):
    """Where a stream says how many tokens it has had so far, and what tells its answers apart."""

    path: Path
    by: Path = ""


class Dialect(_Table, frozen=True, kw_only=True, eq=False):
    """A declaration of a service's streams.

    `ids` are paths of generated ids by kind: equal by their order of appearance. What is at the
    paths of `omit` is never compared, in any event. Load runs alone read `tokens`.
    """

    framing: Literal["sse", "ndjson", "text"]
    events: tuple[EventRule, ...]
    end: Ending
    name: str = ""
    names: Naming = Naming()
    ids: dict[str, Places] = {}
    failure: Reports = Reports()
    omit: Places = ()
    tokens: TokensAt | None = None

    @property
    def finishes(self) -> bool:
        """Whether an answer has a finish, which its end alone does not replace."""
        return bool(self.end.finish) or any(rule.says == "finish" for rule in self.events)


@lru_cache(maxsize=4096)
def rules_of(dialect: Dialect, name: str) -> tuple[tuple[EventRule, Paths], ...]:
    """Return the rules for events of a name, in order, each with the paths it looks for."""
    return tuple(
        (rule, rule.paths(dialect))
        for rule in dialect.events
        if any(_fits(name, one) for one in listed(rule.name))
    )


def _fits(name: str, pattern: str) -> bool:
    # A square bracket is no pattern: "[DONE]" is a name.
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def listed(names: Names) -> tuple[str, ...]:
    """Return one name, or several, as several."""
    return (names,) if isinstance(names, str) else names


@dataclass(slots=True, eq=False)
class _Node:
    """A step of some paths; `path` is the one that ends here."""

    below: dict[Step, _Node] = field(default_factory=dict)
    path: str = ""


class Paths:
    """Several paths, found in one walk over a payload: its cost does not grow with their number.

    What is at `dropped` ones does not count; `telling` ones show that the dialect is the right one.
    """

    def __init__(
        self,
        paths: Iterable[str],
        dropped: frozenset[str] = frozenset(),
        telling: frozenset[str] = frozenset(),
    ) -> None:
        self.dropped, self.telling = dropped, telling
        self._root = _Node()
        for path in paths:
            node = self._root
            for key, index in _STEP.findall(path):
                step = key or (_ANY_INDEX if index == "*" else int(index))
                node = node.below.setdefault(step, _Node())
                if step == _ANY_DEPTH:
                    node.below[step] = node  # leads to itself, too
            node.path = path

    def find(self, payload: Any) -> dict[str, list[Found]]:
        """Return where each path leads that leads somewhere, in the payload's order."""
        found: dict[str, list[Found]] = {}
        _walk(payload, [self._root], (), found)
        return found


def _walk(holder: Any, nodes: list[_Node], place: Place, found: dict[str, list[Found]]) -> None:
    if isinstance(holder, dict):
        items: Iterable[tuple[Step, Any]] = holder.items()
        wild = _ANY_KEY
    elif isinstance(holder, list):
        items, wild = enumerate(holder), _ANY_INDEX
    else:
        return
    deep = [node.below[_ANY_DEPTH] for node in nodes if _ANY_DEPTH in node.below]
    if deep:  # any depth may be none
        nodes = list(dict.fromkeys((*nodes, *deep)))
    for key, value in items:
        meant = (key, wild) if isinstance(key, str) else (key, wild, key - len(holder))
        reached = [node.below[step] for node in nodes for step in meant if step in node.below]
        if reached or deep:
            here = (*place, key)
            for node in reached:
                if node.path:
                    found.setdefault(node.path, []).append((holder, key, here))
            _walk(value, [*reached, *deep], here, found)


@lru_cache(maxsize=1024)
def _alone(path: str) -> Paths:
    return Paths((path,))


def find(payload: Any, path: str) -> list[Found]:
    """Return where a path leads in a payload, in order; nowhere where its steps are not there."""
    return _alone(path).find(payload).get(path, [])


def values(payload: Any, path: str) -> list[Any]:
    """Return what is at a path."""
    return [holder[step] for holder, step, _ in find(payload, path)]


@cache
def built_in() -> Mapping[str, Dialect]:
    """Return the dialects that come along, by name."""
    folder = resources.files(__package__) / "dialects"
    texts = {one.name.removesuffix(".toml"): one.read_text("utf-8") for one in folder.iterdir()}
    return {name: read_dialect(texts[name], f"{name}.toml", name) for name in sorted(texts)}


def find_dialect(name: str) -> Dialect:
    """Return a dialect that comes along; raises `DialectRefused`, naming the nearest."""
    known = built_in()
    if name not in known:
        raise DialectRefused(name, "", f"no such dialect; {_nearest(name, known)}")
    return known[name]


def read_dialect(text: str, where: str, name: str = "") -> Dialect:
    """Read the text of a dialect's file; raises `DialectRefused` with the key and a near name."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DialectRefused(where, "", str(error)) from error
    try:
        dialect = msgspec.convert(table, Dialect)
    except msgspec.ValidationError as error:
        raise _refused(where, str(error)) from error
    for key, reason in _faults(dialect):
        raise DialectRefused(where, key, reason)
    return msgspec.structs.replace(dialect, name=dialect.name or name)


def _refused(where: str, message: str) -> DialectRefused:
    """Translate msgspec's sentence: its place is a path of ours already."""
    reason, _, at = message.partition(" - at ")
    key = at.partition("$")[2].strip(".`").replace("[...]", "[*]")
    if found := re.search(r"(unknown|missing required) field `(.+)`", reason):
        table = _TABLES[re.sub(r"\[.*?\]", "", key).rpartition(".")[2]]
        key = f"{key}.{found[2]}".removeprefix(".")
        nearest = _nearest(found[2], table.__struct_fields__)
        reason = f"no such key; {nearest}" if found[1] == "unknown" else "is missing"
    elif "matching regex" in reason:
        reason = "is no path: a path is like choices[*].delta.content"
    return DialectRefused(where, key, reason)


_TABLES: Final[Mapping[str, type[_Table]]] = {
    "": Dialect,
    "names": Naming,
    "end": Ending,
    "failure": Reports,
    "events": EventRule,
    "texts": TextAt,
    "calls": CallAt,
    "tokens": TokensAt,
}


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"


def _faults(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield keys whose values cannot be meant, and why."""
    if not rules_of(dialect, dialect.names.default) and not dialect.names.path:
        declared = tuple(name for rule in dialect.events for name in listed(rule.name))
        reason = f"no event is called {dialect.names.default!r}"
        yield "names.default", f"{reason}; {_nearest(dialect.names.default, declared)}"
    for mark in dialect.names.marks:
        if not rules_of(dialect, mark):
            yield "names.marks", f"no event is called {mark!r}"
    ends = any(rule.says in {"end", "finish"} for rule in dialect.events)
    if not (ends or dialect.end.body or (dialect.end.finish and dialect.end.unmarked)):
        yield "end", 'no event says "end", and neither a finish nor the body is one'
