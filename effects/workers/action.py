"""An action of a worker: what it gets, what it returns, and how it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from contract.errors import CutoverError
from contract.workers import WorkerArgument, WorkerResult

Arguments: TypeAlias = Mapping[str, WorkerArgument]
"""All arguments of the action, of their types and within their bounds."""
ReportLine: TypeAlias = Callable[[str], None]
"""Takes a line of progress, from any thread; lines that come too fast are left out."""
Action: TypeAlias = Callable[[Arguments, ReportLine], Awaitable[WorkerResult]]
"""Carries out an instruction; may raise `ActionFailed` and `OSError`. It is cancelled at its limit,
and then leaves nothing running."""


class ActionFailed(CutoverError):
    """An action could not be done; `code` is stable, `message` a sentence that may be shown."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
