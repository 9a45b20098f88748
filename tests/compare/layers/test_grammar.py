"""The grammar of a flow: each breach is one finding, on the side that broke it, with its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec import inspect as types

from compare.captures import Question, compare_captures
from compare.findings import Finding, GrammarBroken
from contract.flows import SPECS
from contract.flows.chat import CHAT, Accept, ChatEvent, End, Send, StartReply, Success
from contract.grammar import Grammar, many, one
from contract.records import ErrorRecord, Outcome, RunRecord
from contract.wire import Dialect
from cutover.selftest.exchanges import Events, Script, batch, exchange, store
from cutover.selftest.run_faults import SOUND, add, drop, put
from tests.compare.pairs import causes, findings

Spoil = Callable[[str], str]
SEND = 8
"""Index of a SEND of SOUND that carries text alone."""


def spoilt(run: RunRecord, at: int, spoil: Spoil) -> RunRecord:
    """Change the bytes of one frame."""
    frames = list(run.frames)
    frames[at] = frames[at][0], spoil(frames[at][1])
    return msgspec.structs.replace(run, frames=tuple(frames))


def only(found: tuple[Finding, ...]) -> GrammarBroken:
    """Give the one cause, which is a breach of the grammar."""
    [cause] = [finding for finding in found if finding.after is None]
    assert isinstance(cause, GrammarBroken), cause
    return cause


def remade(**changes: object) -> Spoil:
    """Change keys of a payload; None takes one out."""

    def spoil(frame: str) -> str:
        payload = msgspec.json.decode(frame[6:]) | changes
        kept = {key: value for key, value in payload.items() if value is not None}
        return f"data: {msgspec.json.encode(kept).decode()}\n\n"

    return spoil


PAYLOADS: dict[str, tuple[Spoil, str, str]] = {
    "cut short": (lambda frame: f"{frame[:-6]}\n\n", "SEND?", "is not JSON"),
    "cut within a character": (
        lambda frame: frame.encode()[:-7].decode("utf-8", "replace") + "\n\n",
        "SEND?",
        "is not JSON",
    ),
    "no JSON": (lambda _: "data: Traceback\n\n", "SEND?", "is not JSON"),
    "nested without end": (lambda _: f"data: {'[' * 99_999}\n\n", "SEND?", "nested too deeply"),
    "no object": (lambda _: "data: [1]\n\n", "SEND?", "is not a JSON object"),
    "no blank line": (lambda frame: frame[:-1], "SEND?", "is not JSON"),
    "wrong type": (remade(content=7), "SEND.content", "expected `str`, got `int`"),
    "null": (
        lambda _: 'data: {"step":"SEND","content":null}\n\n',
        "SEND.content",
        "expected `str`, got `null`",
    ),
    "missing key": (remade(content=None), "SEND", "missing required field `content`"),
    "unknown key": (remade(trace="x"), "SEND", "contains unknown field `trace`"),
    "unknown key below": (
        remade(tool_call_feedback={"tool": "t", "status": "done", "ms": 3}),
        "SEND.tool_call_feedback",
        "contains unknown field `ms`",
    ),
    "unknown word": (
        remade(tool_call_feedback={"tool": "t", "status": "lost"}),
        "SEND.tool_call_feedback.status",
        "invalid enum value 'lost'",
    ),
}


@pytest.mark.parametrize("side", ["legacy", "graph"])
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_bad_payload_is_one_breach_with_its_path(name: str, side: str) -> None:
    """Frame and text suffer from it, and say so."""
    spoil, path, why = PAYLOADS[name]
    legacy, graph = exchange(SOUND)
    if side == "legacy":
        legacy = spoilt(legacy, SEND, spoil)
    else:
        graph = spoilt(graph, SEND, spoil)
    found = only(findings(legacy, graph))
    assert found.path == f"{side}.frames[{SEND}].{path.replace('SEND?', '(not JSON)')}"
    assert found.side == side
    assert why in str(found.legacy or found.graph)


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_same_bad_payload_on_both_sides_is_one_finding(name: str) -> None:
    """Equal runs can be equally wrong, raw bytes and all."""
    spoil, _, why = PAYLOADS[name]
    runs = [spoilt(run, SEND, spoil) for run in exchange(SOUND)]
    [finding] = findings(*runs)
    assert only((finding,)).side == "both"
    assert why in str(finding.legacy)


LONG = SOUND.but(
    pieces=tuple(f"{word} 一段很长的文字，好让每一帧都超过一百二十八个字节" for word in "abcdefgh")
)


@pytest.mark.parametrize("script", [SOUND, LONG], ids=["short", "long"])
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_bad_payload_is_found_in_captures_of_equal_runs(
    tmp_path: Path, name: str, script: Script
) -> None:
    """Where equal runs are told by a glance at their bytes, too: among sound frames like it."""
    spoil, _, why = PAYLOADS[name]
    wrong = tuple(spoilt(run, SEND + 2, spoil) for run in exchange(script, number=1))
    store(tmp_path, batch(exchange(script), wrong, exchange(script, number=2)))
    tally = compare_captures(str(tmp_path), Question(SPECS))
    assert (tally.pairs, tally.equal, tally.unsound) == (3, 3, 1)
    [cluster] = tally.clusters.ordered()
    [finding] = cluster.exemplars[0].findings
    assert only((finding,)).side == "both"
    assert why in str(finding.legacy)


ORDERS: dict[str, tuple[Callable[[Events], Events], str]] = {
    "no prologue": (drop(0, 1), "SEND where ACCEPT was due"),
    "two prologues": (add(1, Accept()), "ACCEPT where START_REPLY was due"),
    "a second START_REPLY": (add(5, StartReply()), "START_REPLY where SEND or FAILED or SUCCESS"),
    "no SUCCESS": (drop(12), "END where SEND or FAILED or SUCCESS was due"),
    "two SUCCESSES": (add(12, Success(SOUND.text)), "SUCCESS where END was due"),
    "END twice": (add(99, End()), "END where nothing more was due"),
    "behind the end": (add(99, Send("x")), "SEND where nothing more was due"),
    "text takes back": (put(SEND, Send("别")), "SEND: its text took back what had been shown"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_bad_order_on_both_sides_is_one_finding(name: str) -> None:
    """One prologue, one terminal, nothing behind it, and text that never shrinks."""
    spoil, sentence = ORDERS[name]
    wrong = SOUND.but(spoil=spoil)
    runs = exchange(wrong, wrong)
    found = only(findings(*runs))
    assert found.side == "both"
    assert str(found.legacy).startswith(sentence)


ENDED_OTHERWISE: dict[Outcome, ErrorRecord | None] = {
    "paused": None,
    "refused": ErrorRecord("message_locked"),
    "failed": ErrorRecord("model_error"),
    "timeout": ErrorRecord("deadline"),
}


@pytest.mark.parametrize("outcome", ENDED_OTHERWISE)
def test_no_end_is_due_of_runs_that_say_why_there_is_none(outcome: Outcome) -> None:
    """A pause, a refusal, an honest failure on both sides: no violation."""
    short = SOUND.but(spoil=drop(12, 13), outcome=outcome, error=ENDED_OTHERWISE[outcome])
    assert not findings(*exchange(short, short))


def test_different_breaches_are_found_on_their_sides() -> None:
    """Not the same breach: two findings."""
    runs = exchange(SOUND.but(spoil=add(99, End())), SOUND.but(spoil=add(1, Accept())))
    broken = [f for f in findings(*runs) if isinstance(f, GrammarBroken)]
    assert [(f.side, f.at) for f in broken] == [("legacy", 14), ("graph", 1)]


def test_the_same_breach_elsewhere_in_each_stream_is_still_one() -> None:
    """One side sent a piece more before it."""
    legacy, graph = exchange(Script(spoil=add(5, StartReply())), Script(spoil=add(6, StartReply())))
    broken = [f for f in findings(legacy, graph) if isinstance(f, GrammarBroken)]
    assert [f.side for f in broken] == ["both"]


def test_a_text_that_begins_anew_where_another_stack_took_over_is_sound() -> None:
    """The record says how many frames the client had; anywhere else it is a breach."""
    begun: list[ChatEvent] = [Accept(), StartReply(), Send("今天"), Send("昨天"), Success("昨天")]
    frames = tuple((k, CHAT.encode(event).decode()) for k, event in enumerate([*begun, End()]))
    legacy, graph = (msgspec.structs.replace(run, frames=frames) for run in exchange())
    taken = msgspec.structs.replace(graph, sent=3)
    assert only(findings(legacy, graph)).side == "both"
    assert only(findings(legacy, taken)).side == "legacy"
    assert not findings(*(msgspec.structs.replace(run, sent=3) for run in (legacy, graph)))


DELTAS = replace(
    CHAT,
    events=None,
    grammar=Grammar((many("token"), one("done"))),
    dialect=Dialect(text={"token": "content"}, terminal=("done",)),
)


def deltas(*payloads: str) -> tuple[tuple[int, str], ...]:
    """Frame tokens and the end."""
    tokens = (f"event: token\ndata: {payload}\n\n" for payload in payloads)
    return tuple(enumerate((*tokens, "event: done\ndata: {}\n\n")))


@pytest.mark.parametrize("side", ["legacy", "graph"])
def test_the_text_of_an_illegible_delta_is_missed_after_it(side: str) -> None:
    """All that lacks is what stood there; anything else would be a cause of its own."""
    pieces = [f'{{"content":"{word}"}}' for word in "abc"]
    whole, cut = deltas(*pieces), deltas(pieces[0], pieces[1][:-3], pieces[2])
    other = deltas(pieces[0], pieces[1][:-3], pieces[0])

    def kinds(spoilt: tuple[tuple[int, str], ...]) -> list[str]:
        control, candidate = exchange()
        frames = (whole, spoilt) if side == "graph" else (spoilt, whole)
        runs = (
            msgspec.structs.replace(run, frames=sent)
            for run, sent in zip((control, candidate), frames, strict=True)
        )
        return [kind for _, kind in causes(findings(*runs, wire=DELTAS))]

    assert kinds(cut) == ["grammar_broken"]
    assert kinds(other) == ["grammar_broken", "text_changed"]


@pytest.mark.parametrize("name", SPECS)
def test_every_event_of_every_flow_is_declared_strictly(name: str) -> None:
    """Or an unknown key would pass; and every event of the grammar is a struct."""
    structs = get_args(SPECS[name].events)
    info = types.multi_type_info(structs)
    below = [
        f.type for struct in info if isinstance(struct, types.StructType) for f in struct.fields
    ]
    inner = [t for field in below for t in (getattr(field, "types", None) or (field,))]
    met = [t for t in (*info, *inner) if isinstance(t, types.StructType)]
    assert all(t.cls.__struct_config__.forbid_unknown_fields for t in met)
    tags = {struct.__struct_config__.tag for struct in structs}
    assert {word for step in SPECS[name].grammar.steps for word in step.names} <= tags
