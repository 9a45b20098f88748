"""Workers: what they can do, the instructions, the updates they stream, and their audit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from contract.errors import CutoverError
from contract.stores import storable

Risk = Literal["low", "medium", "high", "critical"]
WorkerArgument = str | int | float | bool


class AuditContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the audit log says of an instruction beside what came of it: `by` has approved it."""

    entry_id: str
    session_id: str
    risk: Risk
    by: str = ""

    def executed(self, call: WorkerCall, result: WorkerResult, moment: datetime) -> AuditEntry:
        """Build the entry of a call that was carried out; `moment` is aware."""
        return AuditEntry(
            entry_id=self.entry_id,
            at=rfc3339(moment),
            session_id=self.session_id,
            event="executed",
            worker=call.worker,
            action=call.action,
            args=call.args,
            risk=self.risk,
            by=self.by,
            ok=result.ok,
            code=result.code,
        )


class WorkerCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Arguments of `workers.run`: one instruction to one worker.

    With an `audit` the live port appends to the log what came of it; workers do not see that.
    """

    worker: str
    action: str
    args: dict[str, WorkerArgument] = {}
    audit: AuditContext | None = None


class WorkerResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of an instruction: a sentence to show and, where it was not `ok`, a stable code.

    `data` is the result as JSON, that later instructions refer to ("the first one").
    """

    ok: bool
    message: str
    code: str = ""
    data: Any = None


class WorkerUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of `workers.run`: a line of progress or, last, the result. `at` as in `Chunk`.

    A result that is `audited` is in the audit log already.
    """

    progress: str = ""
    result: WorkerResult | None = None
    at: int = 0
    audited: bool = False


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of `audit.append`: what became of an instruction, when, and by whose decision.

    `at` is RFC 3339, of the clock port. `ok` and `code` are those of the result.
    """

    entry_id: str
    at: str
    session_id: str
    event: Literal["requested", "approved", "rejected", "refused", "executed"]
    worker: str
    action: str
    args: dict[str, WorkerArgument] = {}
    risk: Risk
    by: str = ""
    ok: bool | None = None
    code: str = ""


def rfc3339(moment: datetime) -> str:
    """Write an aware time in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Audited(msgspec.Struct, frozen=True):
    """Result of `audit.append`: the entry is in the log."""


ArgumentType: TypeAlias = Literal["string", "integer", "number", "boolean"]

LONGEST_ARGUMENT: Final = 4_096
"""Characters of a text: as many as a path may have. A person has to read it before approving."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class ActionArgument(msgspec.Struct, frozen=True, omit_defaults=True):
    """An argument of an action: its JSON type, what it means, and the bounds of a number.

    `default` is what it is where it is left out; an argument without one is required.
    """

    name: str
    type: ArgumentType
    meaning: str
    default: WorkerArgument | None = None
    least: float | None = None
    most: float | None = None

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is None


class WorkerAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker can do; one that does not `change` anything can be done again at will."""

    worker: str
    name: str
    meaning: str
    changes: bool
    arguments: tuple[ActionArgument, ...] = ()


_COUNT: Final = ActionArgument("count", "integer", "how many, largest first", 10, 1, 100)
_RELEASE: Final = "name of the release: letters, digits, '.', '_' and '-'"
_CONTAINER: Final = ActionArgument("name", "string", "name of the container")

WORKER_ACTIONS: Final[Mapping[tuple[str, str], WorkerAction]] = {
    (row.worker, row.name): row
    for row in (
        WorkerAction("system", "disk", "space of each disk", changes=False),
        WorkerAction("system", "memory", "memory and swap in use", changes=False),
        WorkerAction(
            "system",
            "processes",
            "processes that take most memory or processor time",
            changes=False,
            arguments=(
                ActionArgument("by", "string", "'memory' or 'cpu'", "memory"),
                _COUNT,
            ),
        ),
        WorkerAction(
            "system",
            "large_files",
            "largest files beneath a folder",
            changes=False,
            arguments=(
                ActionArgument("path", "string", "folder, the whole root if left out", ""),
                _COUNT,
            ),
        ),
        WorkerAction(
            "system",
            "delete_temporary",
            "delete a temporary file, or those of a pattern; either is given",
            changes=True,
            arguments=(
                ActionArgument("path", "string", "one file", ""),
                ActionArgument(
                    "pattern", "string", "names of files in all temporary folders, as *.log", ""
                ),
            ),
        ),
        WorkerAction(
            "network",
            "reach",
            "whether a host resolves and takes connections",
            changes=False,
            arguments=(
                ActionArgument("host", "string", "name or address"),
                ActionArgument("port", "integer", "TCP port", least=1, most=65_535),
                ActionArgument("timeout", "number", "seconds", 5.0, 0.1, 30),
            ),
        ),
        WorkerAction(
            "container",
            "list",
            "containers with image and state",
            changes=False,
            arguments=(ActionArgument("all", "boolean", "stopped ones, too", default=False),),
        ),
        WorkerAction(
            "container",
            "logs",
            "last lines of a container's log",
            changes=False,
            arguments=(
                _CONTAINER,
                ActionArgument("lines", "integer", "how many", 100, 1, 1_000),
            ),
        ),
        WorkerAction(
            "container",
            "restart",
            "restart a container",
            changes=True,
            arguments=(
                _CONTAINER,
                ActionArgument("grace", "integer", "seconds it has to stop", 10, 0, 60),
            ),
        ),
        WorkerAction(
            "deploy",
            "plan",
            "what a release of the source would be",
            changes=False,
            arguments=(
                ActionArgument("release", "string", f"{_RELEASE}; if left out of its content", ""),
            ),
        ),
        WorkerAction(
            "deploy",
            "build",
            "build a release beside those that are there",
            changes=True,
            arguments=(ActionArgument("release", "string", f"{_RELEASE}, as planned"),),
        ),
        WorkerAction(
            "deploy",
            "release",
            "make a built release the current one",
            changes=True,
            arguments=(ActionArgument("release", "string", f"{_RELEASE}, as built"),),
        ),
        WorkerAction(
            "deploy",
            "verify",
            "check the current release, and go back to the one before where it fails",
            changes=True,
            arguments=(ActionArgument("release", "string", f"{_RELEASE}, as released"),),
        ),
        WorkerAction(
            "deploy",
            "rollback",
            "go back to the release before",
            changes=True,
            arguments=(
                ActionArgument(
                    "release", "string", f"{_RELEASE}, which to leave; the current if left out", ""
                ),
            ),
        ),
    )
}
"""Every action of every worker, by (worker, name)."""


class BadWorkerArguments(CutoverError):
    """The arguments of an instruction are not those of its action; names the first wrong one."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(f"argument {argument!r}: {reason}")
        self.argument = argument


def complete_arguments(
    action: WorkerAction, given: Mapping[str, WorkerArgument]
) -> dict[str, WorkerArgument]:
    """Return the arguments of an action in its order, with defaults; raises `BadWorkerArguments`.

    A whole number is taken for an integer however it is written (10.0), as models write both.
    """
    known = {argument.name: argument for argument in action.arguments}
    for name in given:
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise BadWorkerArguments(name, f"{action.name!r} has {names}")
    return {name: _value(argument, given.get(name)) for name, argument in known.items()}


def _value(argument: ActionArgument, value: WorkerArgument | None) -> WorkerArgument:
    if value is None:
        if argument.default is None:
            raise BadWorkerArguments(argument.name, "is required")
        return argument.default
    if argument.type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    # In Python true is an integer.
    if not isinstance(value, _TYPES[argument.type]) or (
        isinstance(value, bool) and argument.type != "boolean"
    ):
        raise BadWorkerArguments(argument.name, f"must be of the type {argument.type!r}")
    if isinstance(value, str):
        if not storable(value) or (argument.required and not value):
            raise BadWorkerArguments(argument.name, "is empty, or holds what is no character")
        if len(value) > LONGEST_ARGUMENT:
            raise BadWorkerArguments(argument.name, f"at most {LONGEST_ARGUMENT} characters")
        return value
    least, most = argument.least, argument.most
    if not (least is None or value >= least) or not (most is None or value <= most):
        raise BadWorkerArguments(argument.name, f"allowed: {least:g} to {most:g}")
    return value
