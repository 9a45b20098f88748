"""Writes that stream: compared by what was asked for and in which order, never by their items."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from compare.findings import general_path, kind_of
from contract import operations as ops
from contract.workers import WorkerCall, WorkerUpdate
from cutover.selftest.exchanges import Script, ScriptedCall, exchange, tape_of
from tests.compare.pairs import findings

Calls = list[ScriptedCall]


def run(action: str, **args: str) -> ScriptedCall:
    """Instruct a worker at a site of its own."""
    return ScriptedCall(ops.WORKERS_RUN, action, WorkerCall("deploy", action, dict(args)))


def script(*made: ScriptedCall) -> Script:
    """Make a chat that instructs workers before its lock is released."""

    def upset(calls: Calls) -> Calls:
        return [*calls[:-1], *made, calls[-1]]

    return Script(upset=upset)


BUILD, RELEASE = run("build", folder="web"), run("release")
CHANGES: dict[str, tuple[Script, list[str]]] = {
    "equal": (script(BUILD, RELEASE), []),
    "argument": (
        script(run("build", folder="app"), RELEASE),
        ["write_changed workers.run@build[].args.folder"],
    ),
    "order": (script(RELEASE, BUILD), ["write_order order"]),
    "skipped": (script(BUILD), ["call_skipped workers.run@release[]"]),
}


@pytest.mark.parametrize(("graph", "causes"), CHANGES.values(), ids=CHANGES)
def test_instructions_are_compared_like_other_writes(graph: Script, causes: list[str]) -> None:
    """The worker, its action, each argument; the order in which they last."""
    found = [one for one in findings(*exchange(script(BUILD, RELEASE), graph)) if not one.after]
    assert [f"{kind_of(one)} {general_path(one.path)}" for one in found] == causes


PROGRESS: list[Callable[[], tuple[WorkerUpdate, ...]]] = [
    lambda: (WorkerUpdate("fetching", at=1), WorkerUpdate("compiling", at=2)),
    lambda: (WorkerUpdate("all at once", at=9),),
]


def test_cadence_and_words_of_progress_are_no_difference() -> None:
    """Two runs with tapes of their own: what a worker said belongs to neither stack."""
    legacy, graph = exchange(script(BUILD))
    assert legacy.tape is not None
    tapes = []
    for made in PROGRESS:
        [entry] = tape_of([ScriptedCall(ops.WORKERS_RUN, "build", BUILD.arguments, made())])
        tapes.append(
            tuple(
                msgspec.structs.replace(one, items=entry.items) if one.port == "workers" else one
                for one in legacy.tape
            )
        )
    sides = [
        msgspec.structs.replace(side, tape=tape)
        for side, tape in zip((legacy, graph), tapes, strict=True)
    ]
    assert findings(*sides) == ()
