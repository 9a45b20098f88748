"""Which runs are paired, why others are not, and what clients were served."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from compare.differences import Comparison, Difference, Pair
from compare.pairs import Rows, exchange_rows, paired, rows_of
from cutover.errors import Completed, Failed, Left, Outcome, Pause, Refusal
from cutover.flow import Flow
from cutover.records import PlayRecord, RunRecord, TapeRecord
from cutover.wire import find_dialect
from router.services import ServiceFlow
from rules.flows import FLOWS
from tests.router.captures.records import line

DIALECT = find_dialect("chat-completions")
BOT = ServiceFlow("bot", {"/bot": ("POST",)}, DIALECT, {"conversation": "body.id"})
KNOWN: Mapping[str, Flow] = {**FLOWS, "bot": BOT}

GRAMMAR = Failed("grammar")
SERVED = line(tape=TapeRecord(question="mine"))
GRAPH: dict[str, Any] = {"role": "shadow", "policy": "play", "stack": "graph"}
SHADOW = line(**GRAPH)
REPLAY = line(**GRAPH | {"role": "replay"})
AGAIN = line(role="replay", policy="play")
FORK = line(role="fork", policy="fork", tape=SERVED.tape)


def taken_over(outcome: Outcome = GRAMMAR) -> list[RunRecord]:
    """Return the lines of an exchange that graph took over from legacy."""
    first = line(tape=TapeRecord(question="mine"), served="graph", outcome=outcome)
    return [first, line(role="fallback", stack="graph", served="graph")]


BY_GRAPH, BY_LEGACY = line(stack="graph", served="graph"), line(role="shadow", stack="legacy")
LEFT, STOPPED = line(outcome=Left()), line(outcome=Failed("server_stopped"))
FIRST, LAST = taken_over()
PAIRS: dict[str, tuple[Sequence[RunRecord], bool, Any]] = {
    "a shadow of the other stack": ([SERVED, SHADOW], False, (SERVED, SHADOW)),
    "a replay counts before it": ([SERVED, SHADOW, REPLAY], False, (SERVED, REPLAY)),
    "a fork counts before both": ([SERVED, REPLAY, FORK, SHADOW], False, (SERVED, FORK)),
    "and is no baseline": ([SERVED, FORK, AGAIN], True, (SERVED, AGAIN)),
    "in any order": ([REPLAY, SHADOW, SERVED], False, (SERVED, REPLAY)),
    "one of the same stack does not": ([SERVED, AGAIN], False, "not_played"),
    "unless it is the baseline": ([SERVED, AGAIN, SHADOW], True, (SERVED, AGAIN)),
    "a baseline is legacy's": ([BY_GRAPH, SHADOW], True, "not_played"),
    "the last run after a takeover": ([FIRST, LAST, BY_LEGACY], False, (LAST, BY_LEGACY)),
    "without the fallback's line": ([FIRST, SHADOW], False, "lines_missing"),
    "without the serving line": ([SHADOW], False, "lines_missing"),
    "a fallback alone": ([LAST], False, "lines_missing"),
    "no shadow": ([SERVED], False, "not_played"),
    "the client left": ([LEFT, SHADOW], False, "client_left"),
    "the server stopped": ([STOPPED, SHADOW], False, "server_stopped"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    """The run that served last, with the newest of the other stack, on the serving run's tape."""
    runs, baseline, expected = PAIRS[name]
    found = paired(runs, baseline=baseline)
    assert (found if isinstance(found, str) else (found.served, found.played)) == expected
    if isinstance(found, Pair):
        assert found.tape.question == "mine"


DIFFERENT = Comparison((Difference("text", "text", at=3), Difference("annotation", "usage")))


def rows(runs: Sequence[RunRecord], found: Comparison = DIFFERENT, **more: Any) -> Rows:
    """Return the rows of lines whose comparison comes to this."""
    return rows_of(runs, KNOWN, lambda *_: found, **more)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (Comparison(), "equal"),
        (Comparison((Difference("annotation", "usage"),)), "equal"),
        (DIFFERENT, "different"),
    ],
)
def test_the_row_of_a_pair(found: Comparison, state: str) -> None:
    """It has the moment of what served."""
    found = replace(found, left_out=("calls",), folded=3, pieces=(5, 1))
    row = rows([SERVED, msgspec.structs.replace(REPLAY, at=7)], found).pairs[0]
    assert (row.state, row.at, row.differences) == (state, SERVED.at, found.differences)
    assert (row.left_out, row.folded, row.pieces) == (("calls",), 3, (5, 1))


@pytest.mark.parametrize(
    ("runs", "why_not"),
    [
        ([SERVED, SHADOW], "damaged"),
        ([SERVED], "not_played"),
        ([line(flow="sung"), line(flow="sung", **GRAPH)], "unknown_flow"),
    ],
)
def test_what_is_not_compared_says_why(runs: Sequence[RunRecord], why_not: str) -> None:
    """A comparison that meets damage, no second run, and a flow that is not known here."""
    row = rows(runs, Comparison(damage="torn")).pairs[0]
    assert (row.state, row.why_not) == ("not_compared", why_not)


@pytest.mark.parametrize(
    ("flow", "served", "played", "silent"),
    [("bot", 2, 0, True), ("bot", 0, 1, True), ("bot", 1, 1, False), ("chat", 2, 0, False)],
)
def test_a_service_whose_calls_do_not_come_back_is_marked(
    flow: str, served: int, played: int, silent: bool
) -> None:
    """Stacks in this process cannot lack their set-up."""
    call = (PlayRecord("model", "tape", 0),)
    runs = [line(flow=flow, plays=call * served), line(flow=flow, **GRAPH, plays=call * played)]
    assert rows(runs).pairs[0].silent is silent
    runs[1] = msgspec.structs.replace(runs[1], outcome=Failed("service_unavailable"))
    assert rows(runs).pairs[0].silent is False, "what was not reached asks nothing"


def test_a_baseline_stands_beside_its_pair() -> None:
    """Only where it is asked for."""
    runs = [SERVED, SHADOW, AGAIN]
    assert [one.baseline for one in rows(runs).pairs] == [False]
    assert [one.baseline for one in rows(runs, aa=True).pairs] == [False, True]
    assert [one.baseline for one in rows(runs[:2], aa=True).pairs] == [False]


def test_lines_may_come_in_any_order_and_three_pairs_show_a_cause() -> None:
    """The first ones; of rows that are put together, too."""
    lines = [
        msgspec.structs.replace(one, exchange=f"e{at}", at=at)
        for at in (5, 4, 3, 2, 1)
        for one in (SHADOW, SERVED)
    ]
    found = rows([*lines[::2], *lines[1::2]])
    assert [one.exchange for one in found.pairs] == ["e1", "e2", "e3", "e4", "e5"]
    (shown,) = (found.exemplars[one.cause("chat")] for one in DIFFERENT.differences[:1])
    assert [one.exchange for one in shown] == ["e1", "e2", "e3"]
    earlier = rows([msgspec.structs.replace(one, exchange="e0", at=0) for one in (SERVED, SHADOW)])
    found.add(earlier)
    shown = found.exemplars[DIFFERENT.differences[0].cause("chat")]
    assert [one.exchange for one in shown] == ["e0", "e1", "e2"]
    assert (len(found.pairs), len(found.exchanges)) == (6, 6)


ENDS: list[tuple[Outcome, str, str]] = [
    (Completed(), "completed", ""),
    (Failed("truncated"), "failed", "truncated"),
    (Refusal(429, "busy"), "refused", "busy"),
    (Pause("q"), "paused", ""),
    (Left(), "left", ""),
]


@pytest.mark.parametrize(("outcome", "end", "code"), ENDS)
def test_what_a_client_was_served(outcome: Outcome, end: str, code: str) -> None:
    """Times are in milliseconds; shadows and foreign flows are no exchanges."""
    served = line(
        outcome=outcome,
        first_text_us=1500,
        ended_us=20_000,
        why="percent",
        versions={"config": "c", "code": "v"},
    )
    foreign = line(exchange="e2", flow="sung")
    (row,) = exchange_rows([served, SHADOW, foreign], KNOWN)
    assert (row.end, row.code, row.failed_behind) == (end, code, "")
    assert (row.first_text_ms, row.ended_ms, row.why) == (1.5, 20.0, "percent")
    assert (row.config, row.code_version) == ("c", "v")


@pytest.mark.parametrize(
    ("outcome", "code"), [(Failed("grammar"), "grammar"), (Refusal(400, "late"), "refused_late")]
)
def test_a_takeover_names_the_stack_that_failed(outcome: Outcome, code: str) -> None:
    """And why; what its client had is the whole stream."""
    (row,) = exchange_rows(taken_over(outcome), KNOWN)
    assert (row.assigned, row.failed_behind, row.served) == ("legacy", "legacy", "graph")
    assert (row.end, row.code) == ("completed", code)


@pytest.mark.parametrize(
    ("flow", "request_", "drawn_by", "unit"),
    [
        ("session", {"session_id": "s", "user_id": "u"}, "", ("s", "session_id")),
        ("session", {"session_id": "s", "user_id": "u"}, "user_id", ("u", "user_id")),
        ("session", {"session_id": "s"}, "user_id", ("", "")),
        ("bot", {"content": '{"id": "c7"}'}, "", ("c7", "conversation")),
        ("bot", {"content": "{}"}, "", ("", "")),
        ("gone", {"session_id": "s"}, "", ("", "")),
    ],
)
def test_a_unit_is_what_was_drawn(
    flow: str, request_: dict[str, str], drawn_by: str, unit: tuple[str, str]
) -> None:
    """By the flow's first route key, or the one that is configured."""
    path = {"session": FLOWS["session"].path, "bot": "/bot", "gone": "/gone"}[flow]
    flow = "session" if flow == "gone" else flow
    fields = {"method": "POST", "target": "/bot"} if flow == "bot" else {"message": "hi"}
    text = msgspec.json.encode(fields | request_).decode()
    (row,) = exchange_rows([line(flow=flow, path=path, request=text)], KNOWN, {flow: drawn_by})
    assert (row.unit, row.unit_kind) == unit
