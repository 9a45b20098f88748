"""A process that tries mutants: what hangs in it is found out by its silence, and ended."""

from __future__ import annotations

import ast
import inspect
import logging
import multiprocessing
import resource
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Self

import msgspec

from contract.errors import CutoverError
from cutover.selftest.mutant_trials import DRAWN, FoundOut, Tapes, Way
from cutover.selftest.mutation import Mutant, mutated
from cutover.wiring.stacks import DEFAULTS, load_stack

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

MEMORY_AT_MOST = 4 << 30
"""Bytes of address space: a mutant may send for ever."""
STARTS_WITHIN = 120.0
ENDS_WITHIN = 5.0


class Result(msgspec.Struct, frozen=True):
    """What became of one mutant; `way` None: it behaved as the stack it was made of."""

    place: str
    function: str
    change: str
    way: Way | None = None
    what: str = ""

    @property
    def survived(self) -> bool:
        """Whether nothing was found."""
        return self.way is None


class NotStarted(CutoverError):
    """The process that tries mutants did not come up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the process that tries mutants was not ready within {seconds!r} s")


class NotSound(CutoverError):
    """Something was found in the stack as it is: then nothing can be learnt from its mutants."""

    def __init__(self, found: FoundOut) -> None:
        said = f"{found.way}: {found.what}"
        super().__init__(f"the graph stack, unchanged, is found out itself: {said}")


class MutantProcess:
    """Tries one mutant after the other; `seconds` of silence mean that one hangs."""

    def __init__(self, seconds: float, drawn: int = DRAWN) -> None:
        self._seconds = seconds
        self._drawn = drawn
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Start."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._end()

    def try_out(self, mutant: Mutant, source: str) -> Result:
        """Try a mutant; one that hangs takes its process with it."""
        connection = self._connection or self._start()
        connection.send((mutant, source))
        found = self._heard(connection)
        way, what = found or (None, "")
        return Result(mutant.place, mutant.function, mutant.change, way, what)

    def _heard(self, connection: Connection) -> FoundOut | None:
        """Hear what was found; whoever says nothing is ended, and a fresh process comes next."""
        try:
            if connection.poll(self._seconds):
                found: FoundOut | None = connection.recv()
                return found
        except EOFError:
            self._end()
            return FoundOut("hung", "its process ended")
        self._end()
        return FoundOut("hung", f"silent for {self._seconds:g} s")

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._drawn), daemon=True)
        self._process.start()
        theirs.close()
        self._connection = ours
        if not ours.poll(STARTS_WITHIN):
            self._end()
            raise NotStarted(STARTS_WITHIN)
        found: FoundOut | None = ours.recv()
        if found:
            self._end()
            raise NotSound(found)
        return ours

    def _end(self) -> None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.join(ENDS_WITHIN)


def _work(connection: Connection, drawn: int) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    package = DEFAULTS["graph"].partition(":")[0]
    tapes = Tapes(load_stack("legacy", DEFAULTS["legacy"]), package, drawn)
    connection.send(tapes.try_out("__init__", ast.parse(inspect.getsource(import_module(package)))))
    while True:
        try:
            mutant, source = connection.recv()
        except EOFError:
            return
        connection.send(_found(tapes, mutant, source))


def _found(tapes: Tapes, mutant: Mutant, source: str) -> FoundOut | None:
    try:
        return tapes.try_out(mutant.module, mutated(source, mutant.number))
    except Exception as error:  # noqa: BLE001 - a mutant may break whatever drives it
        return FoundOut("broke its driver", repr(error))
