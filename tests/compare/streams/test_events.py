"""Other wires than the chat flow's: named events, deltas, lines, anything but JSON."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from compare.streams.events import NOT_JSON, EventReader, read_stream
from contract.flows.chat import CHAT
from contract.grammar import Grammar, many, one
from contract.records import ErrorRecord, RunRecord
from contract.wire import Dialect
from cutover.selftest.exchanges import exchange
from tests.compare.pairs import causes, findings

DELTA = replace(
    CHAT,
    grammar=Grammar((many("token"), one("done"))),
    dialect=Dialect(text={"token": "data.content"}, terminal=("done",)),
)


def token(text: str) -> str:
    """Frame one delta."""
    payload = msgspec.json.encode({"data": {"content": text}}).decode()
    return f"event: token\ndata: {payload}\n\n"


DONE = "event: done\ndata: {}\n\n"


def with_frames(run: RunRecord, *frames: str) -> RunRecord:
    """Let a run have sent something else."""
    return msgspec.structs.replace(run, frames=tuple(enumerate(frames)))


def kinds(legacy: tuple[str, ...], graph: tuple[str, ...]) -> list[str]:
    """List the causes between two streams of deltas."""
    control, candidate = exchange()
    runs = with_frames(control, *legacy), with_frames(candidate, *graph)
    return [kind for _, kind in causes(findings(*runs, wire=DELTA))]


def test_deltas_are_joined() -> None:
    """Text is what the pieces make together."""
    stream = read_stream(EventReader(DELTA), enumerate((token("你"), token("好"), DONE)))
    assert stream.text == "你好"
    assert stream.reached == ((1, 0), (2, 0), (2, 0))


def test_deltas_cut_elsewhere_are_another_cadence() -> None:
    """Even when one stream's cuts are among the other's: no frame of deltas can get lost."""
    assert kinds((token("你"), token("好"), DONE), (token("你好"), DONE)) == ["cadence"]


def test_a_lost_delta_is_a_changed_text() -> None:
    """One cause, on the layer of text."""
    assert kinds((token("你"), token("好"), DONE), (token("你"), DONE)) == ["text_changed"]


@pytest.mark.parametrize("frame", ["data: [1]\n\n", "data: oops\n\n", "oops", "data: {}\n"])
def test_a_frame_that_is_no_event_is_read_as_what_it_is(frame: str) -> None:
    """A reader of foreign bytes never fails."""
    event = EventReader(CHAT).read(frame)
    assert event is not None
    assert event.name in {NOT_JSON, ""}


def test_lines_of_json_are_read_without_sse() -> None:
    """Framing `ndjson`."""
    lines = replace(CHAT, dialect=msgspec.structs.replace(CHAT.dialect, framing="ndjson"))
    event = EventReader(lines).read('{"step":"SEND","content":"x"}\n')
    assert event is not None
    assert (event.name, event.text, event.bare) == ("SEND", "x", True)


def test_another_error_code_is_a_finding_of_the_outcome() -> None:
    """Both failed, but not alike; the exception's class is each stack's own affair."""
    control, candidate = (
        msgspec.structs.replace(run, outcome="failed", error=ErrorRecord(code, code))
        for run, code in zip(exchange(), ("model_error", "crash"), strict=True)
    )
    assert causes(findings(control, candidate)) == [("outcome", "code_changed")]


BUSY = ErrorRecord("session_busy", status=409, detail="another turn is under way")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            ErrorRecord("session_busy", status=423, detail=BUSY.detail),
            "refused.session_busy.status",
        ),
        (
            ErrorRecord("session_busy", status=409, detail="try later"),
            "refused.session_busy.detail",
        ),
        (
            ErrorRecord("session_busy", status=422, detail="try later"),
            "refused.session_busy.status",
        ),
        (ErrorRecord("session_busy"), None),
        (BUSY, None),
    ],
    ids=["status", "sentence", "both", "recorded by an earlier version", "equal"],
)
def test_another_refusal_is_one_finding_of_the_outcome(
    other: ErrorRecord, expected: str | None
) -> None:
    """Clients go by the status, and people read the sentence."""
    control, candidate = (
        msgspec.structs.replace(run, outcome="refused", error=error, frames=())
        for run, error in zip(exchange(), (BUSY, other), strict=True)
    )
    found = [one for one in findings(control, candidate) if one.layer == "outcome"]
    assert [one.path for one in found] == ([expected] if expected else [])
    if expected:
        assert found[0].legacy == "refused (409 session_busy: another turn is under way)"
