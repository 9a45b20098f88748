"""Mutations by hand of one stack: the golden tapes must see them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from tests.flows.golden import CASES
from tests.flows.golden_case import SETTINGS
from tests.flows.test_golden import faults
from tests.support.planting import edited, gets, returns
from tests.support.stage import Stage, staged

pytestmark = [pytest.mark.virtual, pytest.mark.slow]


def _louder(text: str) -> str:
    return f"{text}!" if text else text


async def _nothing(*_: Any) -> None:
    """Do nothing."""


async def _backwards(*args: Any, **named: Any) -> Any:
    """Yield the results of tools from the last to the first."""
    for result in reversed([one async for one in RUN_TOOLS(*args, **named)]):
        yield result


LEGACY_CHAT, GRAPH_CHAT = import_module("legacy.chat"), import_module("graph_impl.chat")
RUN_TOOLS = import_module("legacy.model").run_tools
KEEP = "        await conversations.add(replace(turn, **reply, name=None, at=now))\n"
SAY = '    await dialogue.keep(dialogue.reply, "assistant", dialogue.said)\n'
CLEANUP = '    with timed("cleanup"):\n        await locks.release(lock, token)\n'
THINKING = "    yield wire.SessionThinking()\n"
CREATED = """\
    if not history:
        yield wire.SessionCreated({"session_id": session_id})
"""
RUNNING = """\
            for call in answer.calls:
                for event in output.feedback(call.name, "running"):
                    yield event
"""
MUTATIONS: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "a word more in the prompt": ("chat", "legacy", returns(LEGACY_CHAT, "render", _louder)),
    "no history": ("chat", "graph", returns(GRAPH_CHAT, "window", lambda _: ())),
    "a warmer model": ("chat", "graph", gets(GRAPH_CHAT, "chat_model", temperature=0.8)),
    "tools in another order": (
        "chat",
        "graph",
        returns(GRAPH_CHAT, "langchain_tools", lambda tools: tools[::-1]),
    ),
    "another notice": ("chat", "legacy", returns(LEGACY_CHAT, "finish_notice", _louder)),
    "results of tools backwards": (
        *("chat", "legacy"),
        lambda patch: patch.setattr(LEGACY_CHAT, "run_tools", _backwards),
    ),
    "another error of a tool": (
        "chat",
        "legacy",
        returns(import_module("legacy.model"), "tool_error", str.lower),
    ),
    "a reply that is not stored": (
        *("pipeline", "graph"),
        lambda patch: patch.setattr(import_module("graph_impl.pipeline"), "_remember", _nothing),
    ),
    "a check that is read otherwise": (
        *("pipeline", "legacy"),
        returns(import_module("legacy.pipeline"), "needs_memory", lambda found: not found),
    ),
    "usage not summed": (
        *("session", "graph"),
        returns(import_module("graph_impl.session"), "usage", lambda used: dict.fromkeys(used, 1)),
    ),
    "memories not learnt": (
        *("session", "legacy"),
        lambda patch: patch.setattr(import_module("legacy.session"), "_learn", _nothing),
    ),
    "history from the newest": (
        *("chat", "graph"),
        returns(GRAPH_CHAT, "window", lambda turns: turns[::-1]),
    ),
    "a history that is shorter by one": (
        *("chat", "legacy"),
        edited(
            "chat",
            "options.history_tokens, CHAT_HISTORY)",
            "options.history_tokens, CHAT_HISTORY - 1)",
        ),
    ),
    "the reply stored after SUCCESS": (
        *("chat", "legacy"),
        edited(
            "chat",
            f"{KEEP}        yield wire.ChatSuccess(output.content)\n",
            f"        yield wire.ChatSuccess(output.content)\n{KEEP}",
        ),
    ),
    "the reply stored after the last event": (
        *("companion", "legacy"),
        edited(
            "companion",
            f'{SAY}    yield wire.CompanionDone("completed")\n',
            f'    yield wire.CompanionDone("completed")\n{SAY}',
        ),
    ),
    "the lock released and the reply stored in another order": (
        *("chat", "legacy"),
        edited(
            "chat",
            f"{KEEP}        yield wire.ChatSuccess(output.content)\n{CLEANUP}",
            f"{CLEANUP}{KEEP}        yield wire.ChatSuccess(output.content)\n",
        ),
    ),
    "an event left out": ("session", "legacy", edited("session", THINKING, "")),
    "two events changed over": (
        *("session", "legacy"),
        edited("session", f"{CREATED}{THINKING}", f"{THINKING}{CREATED}"),
    ),
    "no word of a tool that runs": (*("chat", "legacy"), edited("chat", RUNNING, "")),
    "a risk that is judged otherwise": (
        *("ops", "legacy"),
        edited("ops", "risk.risk_of(decision)", '"low"'),
    ),
}
"""By what is changed: the flow, the stack, and the change."""


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_mutation_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one golden tape of the flow is told, or asks, otherwise."""
    flow, stack, mutate = MUTATIONS[name]
    mutate(monkeypatch)
    async with staged(**SETTINGS) as stage:
        seen = await _first(stage, flow, stack)
    print(f"{name}: {seen or 'not seen'}")  # noqa: T201 - `pytest -rP` shows what sees it
    assert seen, "no golden tape shows it"


async def _first(stage: Stage, flow: str, stack: str) -> str:
    for case in CASES.values():
        if case.flow == flow and (wrong := await faults(stage, case, stack)):
            return f"{case.name}: {wrong[0]}"
    return ""
