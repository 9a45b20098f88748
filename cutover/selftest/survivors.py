"""Survivors explained: mutants that treat the world and the client as the real stack does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cutover.selftest.mutant_process import Result

Key = tuple[str, str, str]
"""File, function, change: as they are listed; no line, for lines move."""

_GUARDS = "a guard of the code's own: nobody assigns to it, subclasses it, or adds to it"
_NAMES = "a name for people who read timings, traces or diagrams; nothing depends on it"
_LOGGED = "the text of a log line"
_OUTLIVED = (
    "outlived: every chunk and every tool's result sets a later stamp before one is compared, "
    "and what is flushed at the end is sent whatever its stamp"
)
_OVER = "the run ends here: nothing follows a node that names no other"
_SAME_CODEC = "the same encoding under another spelling, or the platform's, which is UTF-8"
_SPARE = "a bound with room to spare: more supersteps than all rounds take, and never reached"
_OTHER_FLOWS = "a chat has its frames taken one by one: only other flows say their texts"
_SOONER = "the engine starts sooner or later while the model thinks: no answer depends on it"
_NOT_LOOKED_UP = "no node looks a model up: that was done when the request was let in"
_NOT_LOST = "no node of a chat is cancelled but with its run: a test of the engine's has one"
_NOT_READ = "the states between the steps are put together, and nobody reads them: only slower"
_NO_THREAD = "a chat keeps no thread, and its graph nothing to keep one in"
_TYPES = "tells the engine a type it does not check"
_ENDS_BY_ITSELF = "the tools' tasks are cancelled already, and end with the next turn of the loop"
_RAISED_ALREADY = "what it would raise is being raised already: the failure of one of the tools"
_UNREAD_FAILURE = "keeps the loop from complaining of a failure in a run nobody reads any more"
_BOTH_OR_NEITHER = "the last frame and its stamp are set together: both are there, or neither"
_LONGER_STATE = "the state is written with its defaults, and read as the same draft"
_EQUAL_LENGTHS = "as many tasks as calls, by the line above"

_MISSING = "prompt %r is missing in %s: the built-in default is used"
_STREAM = "graph.astream(state, config, context=context, stream_mode=[]… → "

_CHAT: Mapping[tuple[str, str], str] = {
    ("_Round", "dataclass(slots=True) → dataclass() (without slots)"): _GUARDS,
    ("_Round", "True → False"): _GUARDS,
    ("_model", "'model' → 'model!'"): _NAMES,
    ("_tools", "'tools' → 'tools!'"): _NAMES,
    ("_use", "zip(calls, tasks, strict=True) → zip(calls, tasks) (without strict)"): _EQUAL_LENGTHS,
    ("_use", "True → False"): _EQUAL_LENGTHS,
    ("_end", "return Command(goto=END) → pass"): _OVER,
    ("_end", "Command(goto=END) → Command() (without goto)"): _OVER,
    (
        "build",
        (
            "StateGraph(ChatState, context_schema=ChatContext) → "
            "StateGraph(ChatState) (without context_schema)"
        ),
    ): _TYPES,
    ("build", "graph.compile(name='chat') → graph.compile() (without name)"): _NAMES,
    ("build", "'chat' → 'chat!'"): _NAMES,
    ("chat.flow", "'prepare' → 'prepare!'"): _NAMES,
    ("chat.flow", "'prepare' → 'prepare!' [2]"): _NAMES,
    ("chat.flow", "2 → 3"): _SPARE,
    ("chat.flow", "5 → 6"): _SPARE,
    ("chat.flow", "5 → 4"): _SPARE,
}
_DRAFT: Mapping[tuple[str, str], str] = {
    ("Draft", "True → False"): _GUARDS,
    ("Draft", "True → False [2]"): _LONGER_STATE,
    ("Draft", "0 → 1"): _OUTLIVED,
    ("Draft", "0 → -1"): _OUTLIVED,
    (
        "_due",
        "last is None or draft.last_at is None → last is None and draft.last_at is None",
    ): _BOTH_OR_NEITHER,
}
_PROMPTING: Mapping[tuple[str, str], str] = {
    (
        "system_prompt",
        (
            "(folder / name).read_text(encoding='utf-8') → "
            "(folder / name).read_text() (without encoding)"
        ),
    ): _SAME_CODEC,
    ("system_prompt", "'utf-8' → 'utf-8!'"): _SAME_CODEC,
    (
        "system_prompt",
        "log.warning('prompt %r is missing in %s: the built-in defaul… → pass",
    ): _LOGGED,
    ("system_prompt", f"'{_MISSING}' → '{_MISSING}!'"): _LOGGED,
}
_AHEAD: Mapping[tuple[str, str], str] = {
    ("<module>", "3 → 4"): _SOONER,
    ("<module>", "3 → 2"): _SOONER,
    ("asked_ahead", "await asyncio.sleep(0) → pass"): _SOONER,
    ("asked_ahead", "0 → -1"): _SOONER,
    (
        "_Ahead.lookup",
        "return await self.model.lookup(site, model_id) → pass",
    ): _NOT_LOOKED_UP,
}
_RUN: Mapping[tuple[str, str], str] = {
    ("<module>", "32 → 33"): _OTHER_FLOWS,
    ("<module>", "32 → 31"): _OTHER_FLOWS,
    ("Sink.say", "self._queue.put_nowait(event) → pass"): _OTHER_FLOWS,
    ("Sink.say", "self._queue.qsize() >= _AHEAD → self._queue.qsize() > _AHEAD"): _OTHER_FLOWS,
    ("Sink.say", "self._queue.qsize() >= _AHEAD → not self._queue.qsize() >= _AHEAD"): _OTHER_FLOWS,
    ("Sink.say", "await self.taken() → pass"): _OTHER_FLOWS,
    (
        "Course",
        "dataclass(frozen=True, slots=True) → dataclass(slots=True) (without frozen)",
    ): _GUARDS,
    (
        "Course",
        "dataclass(frozen=True, slots=True) → dataclass(frozen=True) (without slots)",
    ): _GUARDS,
    ("Course", "True → False"): _GUARDS,
    ("Course", "True → False [2]"): _GUARDS,
    (
        "run",
        (
            "asyncio.create_task(_drain(graph, state, context, _config(co… → "
            "asyncio.create_task(_drain(graph, state, context, _config(co… (without name)"
        ),
    ): _NAMES,
    ("run", "'graph run' → 'graph run!'"): _NAMES,
    (
        "_drain",
        "'exit' if graph.checkpointer else None → 'exit' if not graph.checkpointer else None",
    ): _NO_THREAD,
    ("_drain", "'exit' → 'exit!'"): _NO_THREAD,
    (
        "_drain",
        (
            f"{_STREAM}graph.astream(state, config, context=context, durability=kep… "
            "(without stream_mode)"
        ),
    ): _NOT_READ,
    ("_drain", f"{_STREAM}{_STREAM.removesuffix(' → ')} (without durability)"): _NO_THREAD,
    ("_drain", "raise asyncio.CancelledError from lost → pass"): _NOT_LOST,
    ("_config", "{'recursion_limit': course.steps} → {} (without 'recursion_limit')"): _SPARE,
    ("_config", "'recursion_limit' → 'recursion_limit!'"): _SPARE,
    ("_config", "course.thread is not None → course.thread is None"): _NO_THREAD,
    ("_config", "config['configurable'] = {'thread_id': course.thread} → pass"): _NO_THREAD,
    ("_config", "'configurable' → 'configurable!'"): _NO_THREAD,
    ("_config", "{'thread_id': course.thread} → {} (without 'thread_id')"): _NO_THREAD,
    ("_config", "'thread_id' → 'thread_id!'"): _NO_THREAD,
    ("_config", "return config → pass"): _SPARE,
    ("_stop", "task.exception() → pass"): _UNREAD_FAILURE,
}

_TOOL_RUNS: Mapping[tuple[str, str], str] = {
    ("beside", "await asyncio.gather(*tasks, return_exceptions=True) → pass"): _ENDS_BY_ITSELF,
    (
        "beside",
        (
            "asyncio.gather(*tasks, return_exceptions=True) → "
            "asyncio.gather(*tasks) (without return_exceptions)"
        ),
    ): _RAISED_ALREADY,
    ("beside", "True → False"): _RAISED_ALREADY,
}

_STATE: Mapping[tuple[str, str], str] = {
    ("ChatState", "False → True"): _TYPES,
    (
        "ChatContext",
        "dataclass(frozen=True, slots=True) → dataclass(slots=True) (without frozen)",
    ): _GUARDS,
    (
        "ChatContext",
        "dataclass(frozen=True, slots=True) → dataclass(frozen=True) (without slots)",
    ): _GUARDS,
    ("ChatContext", "True → False"): _GUARDS,
    ("ChatContext", "True → False [2]"): _GUARDS,
}

EXPLAINED: Mapping[Key, str] = {
    (file, function, change): reason
    for file, reasons in (
        ("chat.py", _CHAT),
        ("draft.py", _DRAFT),
        ("templates.py", _PROMPTING),
        ("engine.py", _RUN),
        ("state.py", _STATE),
        ("rounds.py", _TOOL_RUNS),
        ("ahead.py", _AHEAD),
    )
    for (function, change), reason in reasons.items()
}


def reason_for(result: Result) -> str:
    """Say why nothing could be found in a mutant; "" when nobody knows."""
    file = result.place.partition(":")[0]
    return EXPLAINED.get((file, result.function, result.change), "")
