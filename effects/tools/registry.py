"""The registry of tools: which are offered, and one call from the model's text to a result."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, Final, Protocol

import msgspec

from contract.errors import CutoverError
from contract.model import ToolCall, ToolErrorCode, ToolResult, ToolSpec
from effects.loop_time import limit
from effects.tasks import ANYTHING, CANCELLED
from effects.tools.tool import BadArguments, Tool, ToolContext

log = logging.getLogger(__name__)

MAX_ANSWER = 65_536
"""Characters of one answer that a model gets."""
NO_LIMITS: Final[Mapping[str, float]] = {}
_THREADS = 8


class DuplicateTool(CutoverError):
    """Two tools have one name."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"two tools are named {name!r}: {first} and {second}; rename one")


class AnswerNotJson(CutoverError):
    """What a tool has returned is no text, and JSON cannot be made of it."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"a {kind} where text or what becomes JSON is due")


class ToolSource(Protocol):
    """Tools that come and go, such as those of a server elsewhere."""

    def offered(self) -> Iterable[Tool]:
        """Return the tools there are now."""
        ...

    def find(self, name: str) -> Tool | None:
        """Return a tool by its name, also one that is away: calling that fails."""
        ...


class ToolRegistry:
    """Tools by name, in the order they were registered; `context` names the user they work for.

    Behind them come those of `sources`; of two tools of one name the first is called.

    A call takes at most what `limits` has for its tool, in seconds; one that is not there what the
    tool declares, and never more than `longest`. Of its answer the model
    gets the first `characters`, and how many more there were. Plain functions run in
    threads of the registry's own. One that exceeds its time results in `tool_timeout`, but
    occupies its thread until it returns.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        longest: float = 30.0,
        limits: Mapping[str, float] = NO_LIMITS,
        characters: int = MAX_ANSWER,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self.context = ToolContext()
        self._tools: dict[str, Tool] = {}
        self._sources = tuple(sources)
        self._longest = longest
        self._limits = limits
        self._characters = characters
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tool")
        for one in tools:
            self.register(one)

    def register(self, one: Tool) -> None:
        """Add a tool; raises `DuplicateTool`."""
        if (first := self._tools.setdefault(one.spec.name, one)) is not one:
            raise DuplicateTool(one.spec.name, first.source, one.source)

    def for_user(self, user_id: str | None) -> ToolRegistry:
        """Return the port of one exchange: the same tools and threads, working for its user."""
        port = copy(self)
        port.context = ToolContext(user_id)
        return port

    def read_only(self, name: str) -> bool:
        """Whether calling a tool changes nothing; an unknown one does nothing at all."""
        one = self._find(name)
        return one is None or one.read_only

    def idempotent(self, name: str) -> bool:
        """Whether the same call may be made again where its result was lost."""
        one = self._find(name)
        return one is not None and one.idempotent

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """Return the tools there are."""
        there = dict(self._tools)
        for source in self._sources:
            for one in source.offered():
                there.setdefault(one.spec.name, one)
        return tuple(one.spec for one in there.values())

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run one call; whatever goes wrong is in the result."""
        one = self._find(call.name)
        if one is None:
            return ToolResult(error="unknown_tool")
        try:
            # Some models send an empty text for "no arguments".
            arguments = one.read(call.arguments.strip() or "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return ToolResult(error="bad_arguments")
        scope = limit(self._limits.get(call.name) or min(one.timeout, self._longest))
        try:
            async with scope:
                answer = await self._perform(one, arguments)
                return ToolResult(_text(answer, self._characters))
        except BadArguments:
            return ToolResult(error="bad_arguments")
        except CANCELLED:
            raise
        # SystemExit, too: in a task it would end the router.
        except ANYTHING as failure:
            code: ToolErrorCode = "tool_timeout" if scope.expired() else "tool_failed"
            _log_failure(one, code, failure)
            return ToolResult(error=code)

    async def aclose(self) -> None:
        """Take no more plain functions; idempotent. Those that run are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _find(self, name: str) -> Tool | None:
        one = self._tools.get(name)
        for source in self._sources:
            one = one or source.find(name)
        return one

    async def _perform(self, one: Tool, arguments: object) -> object:
        try:
            if inspect.iscoroutinefunction(one.call):
                return await one.call(arguments, self.context)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(
                self._threads, _called, one, arguments, self.context
            )
            return await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _failure(cancelled) from cancelled  # something of the tool's own was cancelled


def _called(one: Tool, arguments: object, context: ToolContext) -> object:
    """Call a plain function in its thread."""
    try:
        return one.call(arguments, context)
    except StopIteration as failure:  # which no future can hold
        raise _failure(failure) from failure


def _failure(raised: BaseException) -> RuntimeError:
    """Return an error in the place of one that would be taken for something else."""
    return RuntimeError(type(raised).__name__).with_traceback(raised.__traceback__)


def _text(answer: object, most: int) -> str:
    """Make text of an answer: as it is, or compact JSON; what UTF-8 cannot encode becomes `?`.

    Raises `AnswerNotJson`.
    """
    try:
        text = answer if isinstance(answer, str) else _encode(answer)
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise AnswerNotJson(type(answer).__name__) from failure
    over = len(text) - most
    if over > 0:
        text = f"{text[:most]}\n[{over} characters left out]"
    return text.encode("utf-8", "replace").decode()


def _encode(answer: object) -> str:
    return msgspec.json.encode(answer, enc_hook=_plain).decode()


def _plain(value: Any) -> object:
    """Return a pydantic model, as LangChain's are, as JSON has it."""
    if not hasattr(value, "model_dump"):
        raise TypeError
    return value.model_dump(mode="json")


def _log_failure(one: Tool, code: ToolErrorCode, failure: BaseException) -> None:
    """Log where a tool failed: neither its arguments nor a message that may quote them."""
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    log.warning("tool %r: %s, %s at %s", one.spec.name, code, type(failure).__name__, where)
