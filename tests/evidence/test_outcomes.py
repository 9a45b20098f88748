"""What became of an exchange, from its records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contract.flows.chat import CHAT
from contract.model import ToolCall, Usage
from contract.records import ErrorRecord, ModelUse, PlayRecord, RunRecord
from evidence.outcomes import ExchangeOutcome, ToolUse, counts_of, outcome_of
from tests.support.records import a_request, a_run, an_entry, raw

BODIES = ({"message_id": "m", "chat_id": "c-1"}, {"message_id": "m"}, {"other": 1})


def frame(name: str, text: str | None = None) -> str:
    """Return a frame of the chat flow."""
    content = {"content": text} if text is not None else {}
    return f"data: {msgspec.json.encode({'step': name, **content}).decode()}\n\n"


ACCEPT, HI, THERE, END = (
    frame("ACCEPT"),
    frame("SEND", "hi"),
    frame("SEND", "hi there"),
    frame("END"),
)
STREAM = ((100, ACCEPT), (300, HI), (900, THERE), (1_000, END))


def outcome(*runs: RunRecord, **known: Any) -> ExchangeOutcome:
    """Return what became of an exchange that has a serving run."""
    found = outcome_of(runs, CHAT, **known)
    assert found is not None
    return found


def test_times_are_those_of_the_frames_and_comments_are_none() -> None:
    """First frame, first text, longest gap, last frame; a keep-alive shortens no gap."""
    kept_alive = (*STREAM[:2], (600, ": ping\n\n"), *STREAM[2:])
    found = outcome(a_run(frames=kept_alive))
    assert (found.first_frame, found.first_text, found.last_frame) == (100, 300, 1_000)
    assert found.longest_gap == 600


def test_shadow_and_replay_are_no_part_of_it() -> None:
    """Only a serving run makes an outcome."""
    shadow = a_run(role="shadow", stack="graph", outcome="failed", cost=9.0)
    served = a_run(frames=STREAM, cost=1.0)
    assert outcome(served, shadow) == outcome(served)
    assert outcome_of([shadow, a_run(role="replay")], CHAT) is None


def test_a_takeover_is_one_stream_with_the_gap_the_client_saw() -> None:
    """Frames that the second run repeated are not counted."""
    first = a_run(
        assigned="graph", stack="graph", served="legacy", frames=STREAM[:2], outcome="failed",
        error=ErrorRecord("crash"), reason="crash", lost_us=4_700,
    )  # fmt: skip
    repeated = tuple((at + 4_000, text) for at, text in STREAM)
    second = a_run(
        assigned="graph", role="fallback", served="legacy", sent=2, frames=repeated,
        reason="crash", lost_us=4_700,
    )  # fmt: skip
    found = outcome(first, second)
    assert (found.assigned, found.served, found.end, found.code) == (
        "graph", "legacy", "completed", "",
    )  # fmt: skip
    assert (found.fallback, found.reason, found.lost) == ("takeover", "crash", 4_700)
    assert (found.first_frame, found.first_text, found.last_frame) == (100, 300, 5_000)
    assert found.longest_gap == 4_900 - 300
    cut_elsewhere = msgspec.structs.replace(second, skipped=3)
    assert outcome(first, cut_elsewhere).longest_gap == 5_000 - 300


def test_a_fallback_before_the_first_frame_counts_its_own_frames_alone() -> None:
    """An open breaker leaves one run, on another stack than the assigned one."""
    failed = a_run(assigned="graph", stack="graph", outcome="timeout", reason="stall")
    whole = a_run(assigned="graph", role="fallback", frames=STREAM, reason="stall")
    found = outcome(failed, whole)
    assert (found.fallback, found.first_frame, found.end) == ("fallback", 100, "completed")
    spared = outcome(a_run(assigned="graph", frames=STREAM, reason="breaker"))
    assert (spared.fallback, spared.reason) == ("breaker", "breaker")
    hashed = outcome(a_run(reason="percent", bucket=7, config="v-1"))
    assert (hashed.fallback, hashed.reason, hashed.bucket, hashed.config) == (
        "",
        "percent",
        7,
        "v-1",
    )


@pytest.mark.parametrize("code", ["client_left", "client_unread"])
def test_a_client_that_left_is_found_in_older_records_too(code: str) -> None:
    """By the code of its run; newer ones state it even of a run that had completed."""
    cancelled = a_run(outcome="cancelled", error=ErrorRecord(code))
    assert outcome(cancelled).client_left
    assert outcome(a_run(client_left=True)).client_left
    assert not outcome(a_run(outcome="failed", error=ErrorRecord("crash"))).client_left


def test_only_live_calls_are_counted_and_failed_tools_in_every_way() -> None:
    """A tool that answers with an error, one whose call failed, and one that worked.

    By the tool's name where it was offered; a model may call any other.
    """
    calls = {"port": "tools", "op": "run", "site": "t"}
    offered = raw({"tools": [{"name": "dice"}, {"name": "calc"}]})
    tape = (
        an_entry(seq=0),
        an_entry(raw({"content": "4"}), seq=1, args=raw(ToolCall("c", "dice", "{}")), **calls),
        an_entry(raw({"error": "failed"}), seq=2, args=raw(ToolCall("c", "dice", "{}")), **calls),
        an_entry(seq=3, end="error", args=raw(ToolCall("c", "a user's words", "{}")), **calls),
        an_entry(offered, seq=4, port="tools", op="list", site="t"),
    )
    plays = [PlayRecord(port="model", op="stream", site="m", how="live", entry=0)]
    plays += [
        PlayRecord(port="tools", op="run", site="t", how="live", entry=entry) for entry in (1, 2, 3)
    ]
    use = ModelUse("m", usage=Usage(7, 5, 12))
    first = a_run(tape=tape, plays=tuple(plays), models=(use,), cost=0.5)
    played = tuple(msgspec.structs.replace(play, how="exact") for play in plays)
    second = a_run(role="fallback", plays=played, models=(use,))
    found = outcome(first, second)
    assert found.tools == {"dice": ToolUse(2, 1), "other": ToolUse(1, 1)}
    assert (found.tool_calls, found.tool_failures) == (3, 2)
    assert {measure for measure, _ in counts_of(found) if measure[0] == "tool_calls"} == {
        ("tool_calls", "dice"),
        ("tool_calls", "other"),
    }
    assert (found.prompt_tokens, found.completion_tokens, found.cost) == (7, 5, 0.5)


def test_after_a_pause_times_count_from_where_it_went_on() -> None:
    """Frames that were sent before the pause are not sent again, its calls not counted again."""
    tape = (
        an_entry(seq=0, port="tools", op="run", at=10, ended=40),
        an_entry(seq=1, port="human", op="answer", at=50, ended=50),
        an_entry(seq=2, port="tools", op="run", at=120, ended=400),
    )
    plays = (
        PlayRecord(port="tools", op="run", site="t", how="exact", entry=0),
        PlayRecord(port="human", op="answer", site="h", how="exact", entry=1),
        PlayRecord(port="tools", op="run", site="t", how="live", entry=2),
    )
    found = outcome(a_run(resumes="x", sent=2, frames=STREAM, tape=tape, plays=plays))
    assert (found.first_frame, found.first_text, found.last_frame) == (850, 850, 950)
    assert (found.tool_calls, found.longest_gap) == (1, 100)


def test_the_conversation_is_that_of_the_request() -> None:
    """None of a request that is not the flow's, nor of one that names none."""
    asked = {body.get("chat_id", ""): outcome(a_run(request=a_request(body))) for body in BODIES}
    assert {name: found.conversation for name, found in asked.items()} == {"c-1": "c-1", "": ""}
    assert outcome(a_run(), conversation="s-1", feedback=-1).conversation == "s-1"
    assert outcome(a_run(), feedback=-1).feedback == -1


def test_the_code_is_that_of_the_assigned_stack() -> None:
    """A breaker that was open had another stack serve: of the assigned one no code ran."""
    for stack, fingerprint in (("graph", "f1"), ("legacy", "")):
        run = a_run(assigned="graph", stack=stack, served=stack, code="f1")
        found = outcome_of([run], CHAT)
        assert found is not None
        assert found.fingerprint == fingerprint


def test_a_cost_that_no_bill_has_is_not_counted() -> None:
    """A sum of billionths has no room for it, and a report ends in no traceback."""
    found = outcome_of([a_run(cost=1e308)], CHAT)
    assert found is not None
    assert "cost" not in {measure[0] for measure, _ in counts_of(found)}
