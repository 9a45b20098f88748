"""Files of dialects: a wire as it is declared, a small TOML file."""

from __future__ import annotations

from typing import Literal

import msgspec

from contract.dialect import Growth

EVERY = "*"
"""In a table by event names: any event."""

Kind = Literal["string", "number", "boolean", "object", "array"]
Places = str | tuple[str, ...]
"""One path, or several of which each counts."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; what nobody knows is refused."""


class Naming(_Table, frozen=True, kw_only=True):
    """What an event is called: what stands at `path`, else the SSE `event:` field, else `default`.

    `names` translates; a value that is no string is looked up as JSON (`true`, `7`).
    """

    path: str | None = None
    default: str = "message"
    names: dict[str, str] = {}


class TextPlace(_Table, frozen=True, kw_only=True):
    """Where an event keeps text that grows otherwise than the dialect's own."""

    path: Places
    growth: Growth


class Tools(_Table, frozen=True, kw_only=True):
    """Where the pieces of tool calls are: `at` each piece, all else below it.

    Without `at` a piece is the payload itself. Pieces of one index make one call.
    """

    at: str = ""
    index: str = "index"
    id: str = "id"
    name: str = "function.name"
    arguments: str = "function.arguments"


class Errors(_Table, frozen=True, kw_only=True):
    """Which events say that the answer failed, and where in them the code is (the first found)."""

    events: tuple[str, ...] = ("error",)
    code: Places = "code"


class Step(_Table, frozen=True, kw_only=True):
    """One place in the order of events: one of the four, with the names that may stand there."""

    one: Places | None = None
    maybe: Places | None = None
    some: Places | None = None
    many: Places | None = None


class Closing(_Table, frozen=True, kw_only=True):
    """A frame that ends a broken stream: its SSE `event:` name, if any, and its payload."""

    event: str = ""
    data: str


class Order(_Table, frozen=True, kw_only=True):
    """Which streams are sound; `never_shrinks`: cumulative text may not take anything back."""

    steps: tuple[Step, ...]
    never_shrinks: bool = True


class DialectFile(_Table, frozen=True, kw_only=True):
    """A dialect: where a wire keeps names, texts, tool calls, endings and errors.

    Tables `text`, `reasoning`, `ignore` and `required` go by event name, `"*"` for any event.
    `parts` are events of their own that share a frame with others. A payload equal to a name in
    `terminal` (`[DONE]`) is that event. `empty = "ignore"`: nulls and empty objects and lists are
    as good as absent. `failure` are the frames that end a broken stream honestly, `{code}` in them
    stands for what went wrong.
    """

    name: str = ""
    framing: Literal["sse", "ndjson"] = "sse"
    payload: Literal["json", "text"] = "json"
    growth: Growth = "delta"
    empty: Literal["count", "ignore"] = "count"
    event: Naming = Naming()
    text: dict[str, str | tuple[str, ...] | TextPlace] = {}
    reasoning: dict[str, str | tuple[str, ...] | TextPlace] = {}
    tools: Tools | None = None
    parts: dict[str, Places] = {}
    terminal: tuple[str, ...] = ()
    errors: Errors = Errors()
    ignore: dict[str, tuple[str, ...]] = {}
    skip: tuple[str, ...] = ()
    required: dict[str, dict[str, Kind]] = {}
    grammar: Order | None = None
    failure: tuple[str | Closing, ...] = ()


_HOWS = ("one", "maybe", "some", "many")


def choices_of(step: Step) -> list[tuple[str, str | tuple[str, ...]]]:
    """List what a step says; a sound one says one thing."""
    said = ((how, getattr(step, how)) for how in _HOWS)
    return [(how, names) for how, names in said if names]
