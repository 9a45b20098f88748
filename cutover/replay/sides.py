"""Which stack is replayed, under which name, and which one it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from yarl import URL

from cutover.own_modules import ModuleHidden, refuse_hidden
from cutover.replay.journal import ReplayMisused
from cutover.wiring.stacks import DEFAULTS, NO_PROMPTS, StackNotLoaded, load_stack
from router.config.schema import RemoteStackSettings, StackSettings
from router.serving.stack import LocalStack
from router.stack import StackName

BUILT_IN = StackSettings()
_OPPOSITE: Mapping[StackName, StackName] = {"legacy": "graph", "graph": "legacy"}


class UnknownStack(ReplayMisused):
    """Neither a stack's name nor a place in a module."""

    def __init__(self, stack: str) -> None:
        known = ", ".join(map(repr, DEFAULTS))
        super().__init__(
            f"no stack {stack!r}: there are {known}, or name one 'package.module:NAME'"
        )


class AgainstItself(ReplayMisused):
    """A stack cannot be compared with itself."""

    def __init__(self, stack: str) -> None:
        super().__init__(f"stack {stack!r} cannot stand against itself")


@dataclass(frozen=True, slots=True)
class Side:
    """A stack's name in records, and where its flows are; "" where there are none to run.

    `prompts` are folders of prompts by flow. `own`: it is a team's, and not built in. `address` is
    that of a service; `where` is then its origin.
    """

    name: StackName
    where: str
    prompts: Mapping[str, Path] = field(default_factory=dict)
    own: bool = True
    address: RemoteStackSettings | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """The requested stack, and the one that runs too where a recording is redacted."""

    requested: Side
    other: Side

    def absolute(self) -> Sides:
        """Return them as a process with another working directory finds their prompts."""
        requested, other = (
            replace(side, prompts={flow: path.resolve() for flow, path in side.prompts.items()})
            for side in (self.requested, self.other)
        )
        return Sides(requested, other)


def sides_of(
    stack: str,
    against: str | None = None,
    prompts: Mapping[str, Path] = NO_PROMPTS,
    stacks: StackSettings = BUILT_IN,
) -> Sides:
    """Read `legacy`, `graph` or `package.module:NAME`; raises `ReplayMisused`.

    The first two are what `stacks` configures. A module's stack takes the place of the stack that
    `against` (legacy by default) is not. `prompts` are the folders of both, by flow.
    """
    name = _named(stack)
    other = _named(against) if against is not None else _OPPOSITE[name or "graph"]
    if other is None:
        raise UnknownStack(str(against))
    if other == name:
        raise AgainstItself(stack)
    if name is None and not all(stack.partition(":")[::2]):
        raise UnknownStack(stack)
    requested = (
        Side(_OPPOSITE[other], stack, prompts) if name is None else _side(name, stacks, prompts)
    )
    return Sides(requested, _side(other, stacks, prompts))


def _side(name: StackName, stacks: StackSettings, prompts: Mapping[str, Path]) -> Side:
    place = stacks.place(name)
    if isinstance(place, RemoteStackSettings):
        return Side(name, str(URL(place.url).origin()), address=place)
    return Side(name, place or DEFAULTS.get(name, ""), prompts, own=bool(place))


def load_side(side: Side) -> LocalStack:
    """Import a stack; raises `StackNotLoaded` whatever its module does when it is imported."""
    if not side.where or side.address is not None:
        raise StackNotLoaded(side.name, side.where, "it is behind an address, or retired")
    try:
        if side.own:
            refuse_hidden(side.where)
        stack = load_stack(side.name, side.where, side.prompts)
    except StackNotLoaded:
        raise
    except ModuleHidden as hidden:
        raise StackNotLoaded(side.name, side.where, str(hidden)) from hidden
    except (Exception, SystemExit) as error:
        # A module that calls `sys.exit(0)` would make the command pass.
        raise StackNotLoaded(side.name, side.where, f"{type(error).__name__}: {error}") from error
    if not isinstance(stack.flows, Mapping):
        raise StackNotLoaded(side.name, side.where, "it is no mapping from flow name to flow")
    return stack


def _named(stack: str) -> StackName | None:
    return next((name for name in _OPPOSITE if name == stack), None)
