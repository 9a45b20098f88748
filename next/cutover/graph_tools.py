"""Finds tools that touch the world past the tape."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from cutover.tape.run import Run


class ToolWatch(BaseCallbackHandler):
    """Counts in `Run.escaped`, by name, the tools that ran without a call on the tape.

    Such a tool is pure, or what it does reaches the world in shadows, too. A call belongs to the
    tool in whose context it is made, or, where that is not known, to all that run at the time.
    """

    run_inline = True  # in order, and before the tool runs
    ignore_chain = ignore_llm = ignore_retriever = True

    def __init__(self, run: Run) -> None:
        self._run = run
        self._names: dict[UUID, str] = {}
        self._taped: set[UUID] = set()
        run.on_call = self._called

    def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Note that a tool runs."""
        del input_str, kwargs
        self._names[run_id] = str((serialized or {}).get("name"))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a tool that has made no call."""
        del output, kwargs
        name = self._names.pop(run_id, None)
        if name is not None and run_id not in self._taped:
            self._run.escaped[name] += 1

    def _called(self) -> None:
        config = var_child_runnable_config.get() or {}
        tool = getattr(config.get("callbacks"), "parent_run_id", None)
        self._taped |= {tool} if tool in self._names else set(self._names)
