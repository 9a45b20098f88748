"""Workers: actions on machines, each an effect that yields its progress and then one result."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cutover import effect
from cutover.errors import Control, CutoverError
from effects.tools import arguments_of

log = logging.getLogger(__name__)

SECONDS: Final = 60.0
"""How long an action may take that does not say otherwise."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """A line of what an action is doing."""

    message: str


class Result(msgspec.Struct, frozen=True, tag="result"):
    """How an action ended; the last that it yields.

    `message` is for clients and models. Rows in `data` have a `number` from 1, by which people
    refer to them ("the first one"). `unknown`: the action writes, and was cut off before its end.
    """

    ok: bool
    message: str
    data: dict[str, Any] = {}
    unknown: bool = False


Report = Progress | Result


class Impossible(CutoverError):
    """An action cannot do what it is asked; `why` is for clients and models."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What workers may touch.

    `temporary_root` is the folder in which files may be deleted, "" none. `hosts` are patterns of
    names and addresses that may be reached. `docker` is the engine's address, "" the local socket.
    `deploy` is an argument list, run in `deploy_folder` for at most `deploy_seconds`.
    """

    temporary_root: str = ""
    hosts: tuple[str, ...] = ("*",)
    docker: str = ""
    deploy: tuple[str, ...] = ()
    deploy_folder: str = "."
    deploy_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a worker: the struct of its arguments, and the effect that performs it."""

    worker: str
    name: str
    writes: bool
    arguments: type[msgspec.Struct]
    perform: Callable[..., AsyncIterator[Report]]


def action(
    worker: str, name: str, *, writes: bool = False, seconds: float = SECONDS
) -> Callable[[Callable[..., AsyncIterator[Report]]], Action]:
    """Make the effect `worker.WORKER.NAME` of an async generator with typed parameters.

    It raises `Impossible` for what it cannot do; another exception leaves its outcome unknown.
    """
    effect_name = f"worker.{worker}.{name}"

    def decorate(function: Callable[..., AsyncIterator[Report]]) -> Action:
        taped = effect(effect_name, writes=writes, seconds=seconds, raises=(Impossible,))
        return Action(worker, name, writes, arguments_of(function), taped(function))

    return decorate


class Workers:
    """The actions of a deployment, and what they may touch."""

    def __init__(self, actions: Iterable[Action], settings: WorkerSettings) -> None:
        self._actions = {(one.worker, one.name): one for one in actions}
        self.settings = settings

    async def run(
        self, worker: str, name: str, arguments: Mapping[str, Any]
    ) -> AsyncIterator[Report]:
        """Carry out an instruction: yield progress, and one result at the end.

        What cannot be carried out, or fails, is a result that is not ok; only the tape's own
        exceptions are raised, and `KeyError` for an action that is not there.
        """
        found = self._actions[worker, name]
        try:
            checked = msgspec.structs.asdict(msgspec.convert(arguments, found.arguments))
        except (msgspec.ValidationError, RecursionError) as failure:
            yield Result(ok=False, message=f"wrong arguments of {worker}.{name}: {failure}")
            return
        ended = False
        try:
            async with aclosing(found.perform(**checked)) as reports:  # type: ignore[type-var] # a generator, annotated as the tape reads it
                async for report in reports:
                    ended = isinstance(report, Result)
                    yield report
        except Control:
            raise
        except Impossible as reason:
            ended = True
            yield Result(ok=False, message=str(reason))
        except Exception:
            log.exception("action cut off worker=%s action=%s", worker, name)
        if not ended:
            message = f"{worker}.{name} was cut off; its outcome is unknown"
            yield Result(ok=False, message=message, unknown=found.writes)
