"""Cadence: on one tape it counts in which pieces a text is sent, as a cause of its own kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from compare.comparison import Comparer
from compare.findings import CadenceChanged, Finding, kind_of
from compare.report import report_of
from contract.equality import Chunking
from contract.flow import Event, Flow, Request
from contract.flows.chat import CHAT, Send
from contract.model import GATEWAY_SITE
from contract.ports import Effects
from contract.records import RunRecord
from contract.wire.dialect import Wire
from cutover.selftest.cases import Case, case
from cutover.selftest.exchanges import Script, exchange
from cutover.selftest.runs import chat_stack, on_virtual_time, serve, shadow
from cutover.selftest.stream_faults import SCENE
from cutover.wiring.stacks import load_stacks
from effects.model import Wait
from tests.compare.pairs import paired, tallied

TEXT = Script().text


def found(runs: tuple[RunRecord, ...], chunking: Chunking = "tape", wire: Wire = CHAT) -> list[str]:
    """Compare two runs; list the kinds of causes."""
    findings: tuple[Finding, ...] = Comparer(wire, chunking).compare(paired(*runs))
    return [kind_of(finding) for finding in findings if finding.after is None]


def cut(*at: int) -> Script:
    """Return a script whose text is sent in these pieces; an empty one ends in the middle."""
    return Script(pieces=tuple(TEXT[a:b] for a, b in pairwise((0, *at, len(TEXT)))))


def throttled(seconds: float) -> Flow:
    """Return the graph's chat with another interval of its throttle."""
    flow = load_stacks()["graph"].flows[CHAT.name]

    def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        options = msgspec.structs.replace(request.options, yield_interval=seconds)
        return flow(replace(request, options=options), effects)

    return wrapped


def held_back() -> Flow:
    """Return the graph's chat, whose text comes as one piece at its end."""
    flow = load_stacks()["graph"].flows[CHAT.name]

    async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        last: Event | None = None
        async for event in flow(request, effects):
            if isinstance(event, Send) and not event.tool_call_feedback:
                last = event
                continue
            if last is not None:
                yield last
                last = None
            yield event

    return wrapped


QUICK = replace(
    SCENE,
    answers=tuple(
        tuple(Wait(0.2) if isinstance(step, Wait) else step for step in answer)
        for answer in SCENE.answers
    ),
)
"""The scene with a piece every 0.2 s: a throttle of 0.5 s joins some of them."""


def at_the_gateway(run: RunRecord) -> RunRecord:
    """Return a run whose model calls passed the gateway."""

    def passed(one: Any) -> Any:
        asked = one.port == "model"
        return msgspec.structs.replace(one, site=GATEWAY_SITE) if asked else one

    tape = None if run.tape is None else tuple(map(passed, run.tape))
    return msgspec.structs.replace(run, plays=tuple(map(passed, run.plays)), tape=tape)


def test_services_behind_the_gateway_cut_by_their_own_clocks() -> None:
    """They get the model's answer without its stamps; asked for exactly, each cut counts."""
    serving = on_virtual_time(serve(load_stacks()["legacy"], SCENE))
    other = on_virtual_time(shadow(chat_stack("graph", throttled(1.5)), SCENE, serving))
    runs = at_the_gateway(serving), at_the_gateway(other)
    assert found((serving, other)) == ["cadence"]
    assert found(runs) == []
    assert found(runs, "exact") != []


@pytest.mark.parametrize(
    ("flow", "scene"), [(throttled(0.4), QUICK), (throttled(1.5), SCENE), (held_back(), SCENE)]
)
def test_another_cadence_on_one_tape_is_one_cause(flow: Flow, scene: Case) -> None:
    """A throttle of another interval; a stream that becomes one piece at the end."""
    legacy = load_stacks()["legacy"]
    serving = on_virtual_time(serve(legacy, scene))
    runs = serving, on_virtual_time(shadow(chat_stack("graph", flow), scene, serving))
    assert found(runs) == ["cadence"]


@pytest.mark.parametrize(
    ("at", "kind"),
    [((3, 10, 20), "cadence"), ((4, 10, 21), "cadence"), ((9, 20), "frame_dropped")],
)
def test_a_cut_that_moved_is_cadence_and_a_frame_that_lacks_is_dropped(
    at: tuple[int, ...], kind: str
) -> None:
    """A throttle moves cuts; a loss leaves the others where they are."""
    runs = exchange(cut(3, 9, 20), cut(*at))
    assert found(runs) == [kind]


def test_one_piece_at_the_end_is_cadence() -> None:
    """Most of the pieces are gone."""
    runs = exchange(cut(3, 9, 20), cut())
    [cadence] = [f for f in Comparer(CHAT).compare(paired(*runs)) if isinstance(f, CadenceChanged)]
    assert found(runs) == ["cadence"]
    assert cadence.legacy == f"4 pieces: 3, 9, 20, {len(TEXT)}"
    assert cadence.graph == f"1 piece: {len(TEXT)}"


def test_cadence_does_not_count_where_it_is_not_asked_for() -> None:
    """`--chunking ignore`, and runs that asked the model themselves."""
    runs = exchange(cut(3, 9, 20), cut(4, 10, 21))
    assert found(runs, "ignore") == []
    control, candidate = runs
    own = msgspec.structs.replace(
        candidate,
        tape=tuple(control.tape or ()),
        plays=control.plays,
    )
    assert found((control, own)) == []


def test_a_run_that_took_over_has_a_cadence_of_its_own() -> None:
    """What the client had by then is sent at once."""
    runs = exchange(cut(3, 9, 20), cut(4, 10, 21), second="fallback")
    assert "cadence" not in found(runs)


def test_cadence_is_told_in_the_report() -> None:
    """Under a title of its own, with the pieces."""
    report = report_of(tallied(exchange(cut(3, 9, 20), cut(4, 10, 21))), "captures", "tape")
    [cluster] = report.clusters
    assert (cluster.kind, cluster.title) == ("cadence", "Text sent in other pieces")


@pytest.mark.slow
@pytest.mark.untraced
def test_equal_pairs_on_one_tape_raise_no_alarm() -> None:
    """The graph stack plays what legacy recorded: every cut is where it was."""
    stacks = load_stacks()
    for seed in range(150):
        drawn = case(seed)
        serving = on_virtual_time(serve(stacks["legacy"], drawn))
        played = on_virtual_time(shadow(stacks["graph"], drawn, serving))
        assert found((serving, played)) == [], seed
