"""An action of a worker: what it gets, what it returns, and how it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from contract.errors import CutoverError
from contract.workers import WorkerArgument, WorkerResult

Arguments: TypeAlias = Mapping[str, WorkerArgument]
"""All arguments of the action, of their types and within their bounds."""
Action: TypeAlias = Callable[[Arguments, "ReportLine"], Awaitable[WorkerResult]]
"""Carries out an instruction; may raise `ActionFailed` and `OSError`. It is cancelled at its limit,
and then leaves nothing running."""


class ReportLine(Protocol):
    """Takes a line of progress, from any thread; lines that come too fast are left out."""

    def __call__(self, line: str, left_out: int = 0, /) -> None:
        """Report a line before which `left_out` others came; of an empty one these alone count."""
        ...


class ActionFailed(CutoverError):
    """An action could not be done; `code` is stable, `message` a sentence that may be shown."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
