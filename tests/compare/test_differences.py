"""What `differences` finds between two runs of an exchange, and what it takes for the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.differences import (
    HELD_US,
    NONE,
    Comparison,
    Difference,
    Pair,
    Rules,
    differences,
    read_rules,
)
from compare.differences.values import MOST_ALIGNED, MOST_BYTES
from cutover.errors import Completed, Failed, Outcome, Pause, Refusal
from cutover.flow import Flow
from cutover.records import EntryRecord, FrameRecord, ItemRecord, PlayRecord, RunRecord, TapeRecord
from cutover.wire import find_dialect
from router.services import ServiceFlow
from tests.support.ask import ASK

ONE, TWO, THREE, FOUR = (f"{number}f8c69d7-4220-475b-9bdb-06a288eb7303" for number in range(1, 5))


def noted(note: Any) -> str:
    """Return an event of the flow."""
    return json.dumps({"type": "noted", "note": note}, ensure_ascii=False)


def said(text: str) -> str:
    """Return a piece of text."""
    return json.dumps({"type": "said", "text": text}, ensure_ascii=False)


DONE, BROKE = '{"type":"done"}', '{"type":"broke","code":"broken"}'


def run(
    *frames: str | tuple[int, str],
    plays: tuple[PlayRecord, ...] = (),
    stack: str = "legacy",
    outcome: Outcome | None = None,
    raw: bool = False,
) -> RunRecord:
    """Return the line of a run of frames, with their stamps in milliseconds."""
    stamped = [one if isinstance(one, tuple) else (1, one) for one in frames]
    served = stack == "legacy"
    return RunRecord(
        exchange="e",
        flow="ask",
        path="/ask",
        role="serving" if served else "shadow",
        policy="live" if served else "play",
        stack=stack,
        assigned="legacy",
        served="legacy",
        at=0,
        outcome=outcome or Completed(),
        request="{}",
        options="{}",
        frames=tuple(
            FrameRecord(at * 1000, frame if raw else f"data: {frame}\n\n") for at, frame in stamped
        ),
        plays=plays,
    )


def tape(*entries: tuple[str, str], writes: bool = False, result: str = "null") -> TapeRecord:
    """Return a tape of calls, a millisecond apart, each a name and what was asked."""
    return TapeRecord(
        tuple(
            EntryRecord(name, "00", asked, at * 1000, writes, (ItemRecord(at * 1000, result),))
            for at, (name, asked) in enumerate(entries)
        )
    )


def stamped(one: Any) -> str | tuple[int, str]:
    """Return a frame of a table, with its stamp where it has one."""
    return one if isinstance(one, str) else (one[0], one[1])


def compared(
    legacy: RunRecord,
    graph: RunRecord,
    entries: TapeRecord | None = None,
    flow: Flow = ASK,
    rules: Rules = NONE,
) -> Comparison:
    """Compare runs on a tape."""
    graph = msgspec.structs.replace(graph, stack="graph", role="shadow", policy="play")
    return differences(Pair(legacy, graph, entries or TapeRecord()), flow, rules)


def brief(found: Comparison) -> list[str]:
    """Return the causes in short: kind, name and path, those that are not empty."""
    causes = [(one.kind, one.name, one.path) for one in found.differences if not one.because]
    return [" ".join(filter(None, one)) for one in causes]


STREAMS = tomllib.loads(Path(__file__).with_name("streams.toml").read_text("utf-8"))


@pytest.mark.parametrize("row", STREAMS)
def test_a_stream(row: str) -> None:
    """Text decides, and events in order; how a text is cut, and new ids, do not count."""
    legacy, graph, expected = STREAMS[row].values()
    found = compared(run(*map(stamped, legacy), DONE), run(*map(stamped, graph), DONE))
    assert sorted(brief(found)) == expected
    assert found.equal == (not expected)


def test_what_cannot_be_seen_is_named() -> None:
    """Texts that look alike."""
    found = compared(run(said("caf\u00e9"), DONE), run(said("cafe\u0301"), DONE))
    assert [one.shape for one in found.differences] == ["NFC/NFD"]


def test_what_was_folded_is_counted() -> None:
    """Each value once at each place."""
    found = compared(run(noted([ONE, ONE, TWO]), DONE), run(noted([THREE, THREE, TWO]), DONE))
    assert (found.equal, found.folded) == (True, 2)


FAILED, REFUSED = Failed("broken"), Refusal(409, "busy", "wait")
ENDS: dict[str, tuple[RunRecord, RunRecord, list[str]]] = {
    "an exception, before the same closing": (
        run(said("a"), noted({"status": "completed"}), DONE),
        run(noted({"status": "failed"}), DONE, outcome=FAILED),
        ["outcome"],
    ),
    "another failure": (
        *(run(outcome=FAILED), run(outcome=Failed("model_timeout", "world"))),
        ["outcome"],
    ),
    "the same failure, told otherwise": (
        *(run(outcome=FAILED), run(outcome=Failed("broken", "world", "in another library"))),
        [],
    ),
    "refused with another status": (
        *(run(outcome=REFUSED), run(outcome=Refusal(429, "busy", "wait"))),
        ["refusal busy status"],
    ),
    "another question": (run(outcome=Pause(ONE)), run(outcome=Pause(TWO)), []),
}


@pytest.mark.parametrize("row", ENDS)
def test_an_end(row: str) -> None:
    """It explains all that is missing behind it."""
    legacy, graph, expected = ENDS[row]
    found = compared(legacy, graph)
    assert brief(found) == expected
    assert {one.because for one in found.differences} <= {"", "earlier_end"}


def test_an_end_is_found_when_the_first_run_ended() -> None:
    """That is where the other one went on."""
    legacy = run((1, said("a")), (9, said("b")), (9, DONE))
    found = compared(legacy, run((1, said("a")), (2, BROKE), outcome=FAILED))
    assert {one.kind: one.at for one in found.differences}["outcome"] == 2000


def test_each_way_to_end_is_a_cause_of_its_own() -> None:
    """A waiver of one failure hides no other."""
    causes = {
        compared(run(DONE), run(outcome=Failed(code))).differences[0].cause("ask")
        for code in ("tape_miss", "stalled")
    }
    assert len(causes) == 2


CHAT = '{"messages":[{"content":"%s"}],"n":1}'
READS, ASKS = PlayRecord("read", "tape", 0), PlayRecord("model.chat", "tape", 1)
CALLS: dict[str, tuple[list[PlayRecord], list[str]]] = {
    "a number of another type": (
        [READS, PlayRecord("model.chat", "nearest", 1, (CHAT % "me").replace("1", "1.0"))],
        [],
    ),
    "another day in the prompt": ([READS, PlayRecord("model.chat", "tape", 1, CHAT % "me")], []),
    "made twice": ([READS, PlayRecord("read", "nearest", 0), ASKS], ["call_added read"]),
    "not on the tape at all": (
        [READS, ASKS, PlayRecord("other", "nearest", None, '{"a":1}')],
        ["call_added other"],
    ),
}


@pytest.mark.parametrize("row", CALLS)
def test_calls(row: str) -> None:
    """Each by its effect and what was asked, never by its place among others."""
    plays, expected = CALLS[row]
    entries = tape(("read", "{}"), ("model.chat", CHAT % "me"))
    live = (PlayRecord("read", "live", 0), PlayRecord("model.chat", "live", 1))
    found = compared(run(DONE, plays=live), run(DONE, plays=tuple(plays)), entries)
    assert brief(found) == expected


def test_a_missing_call_explains_what_quotes_its_result() -> None:
    """And the end of a run that asked for what the tape does not hold follows from that."""
    entries = tape(("tool", "{}"), ("model.chat", CHAT % "it is 1764"), result='"1764"')
    live = (PlayRecord("tool", "live", 0), PlayRecord("model.chat", "live", 1))
    other = (PlayRecord("model.chat", "nearest", 1, CHAT % "it is unknown"),)
    legacy, graph = [noted({"result": "1764"}), DONE], [DONE]
    found = compared(run(*legacy, plays=live), run(*graph, plays=other), entries)
    assert brief(found) == ["call_missing tool"]
    assert {one.because for one in found.differences} == {"", "missing_call"}
    missed = run(
        BROKE,
        plays=(*live, PlayRecord("other", "nearest", None, "{}")),
        outcome=Failed("tape_miss", detail="no call 'other' on the tape"),
    )
    found = compared(run(DONE, plays=live), missed, entries)
    assert brief(found)[0] == "call_added other"
    assert {one.kind: one.because for one in found.differences}["outcome"] == "missing_call"


def test_another_answer_explains_what_is_said_of_it() -> None:
    """A model that is asked something else, and answers otherwise, is the cause of the text."""
    entries = tape(("model.chat", CHAT % "me"), ("model.chat", CHAT % "then"))
    live = tuple(PlayRecord("model.chat", "live", place) for place in range(2))
    asked = PlayRecord("model.chat", "nearest", 0, CHAT % "you")
    plays = (live[0], asked)
    found = compared(
        run((2, said("a b")), (2, DONE), plays=live),
        run((2, said("a c")), (2, DONE), plays=plays),
        entries,
    )
    assert [(one.kind, one.because) for one in found.differences] == [
        ("call_changed", ""),
        ("text", "changed_request"),
    ]


LEFT_OUT: dict[str, tuple[RunRecord, TapeRecord, str]] = {
    "no tape": (run(DONE), TapeRecord(), "calls: neither run has any on the tape"),
    "an incomplete tape": (
        run(DONE, plays=(PlayRecord("read", "tape", 0),)),
        msgspec.structs.replace(tape(("read", "{}")), incomplete=("other",)),
        "calls of other: not stored whole",
    ),
    "a call off the tape": (
        run(DONE, plays=(PlayRecord("read", "live", None, "{}"),)),
        tape(("read", "{}")),
        "calls of read: not on the tape",
    ),
}


@pytest.mark.parametrize("row", LEFT_OUT)
def test_what_was_not_compared_is_said(row: str) -> None:
    """Equal is said of the rest alone."""
    line, entries, said_so = LEFT_OUT[row]
    found = compared(line, line, entries)
    assert (found.equal, found.left_out) == (True, (said_so,))


def test_opaque_values_are_bounded() -> None:
    """What is too long, or too deep, differs as a whole, and it is said."""
    long = ["x" * 100] * (MOST_BYTES // 100)
    found = compared(run(noted({"a": long, "b": 1}), DONE), run(noted({"a": long, "b": 2}), DONE))
    assert brief(found) == ["event_changed noted note.b"]
    asked = ("[" * 3000 + "%d" + "]" * 3000, "[" * 3000 + "2" + "]" * 3000)
    plays = tuple(PlayRecord("read", "nearest", 0, one) for one in (asked[0] % 1, asked[1]))
    found = compared(run(DONE, plays=plays[:1]), run(DONE, plays=plays[1:]), tape(("read", "{}")))
    assert [one.kind for one in found.differences] == ["call_changed"]
    assert len(found.differences[0].legacy or "") < 10_000
    many = [noted(number) for number in range(MOST_ALIGNED + 1)]
    assert brief(compared(run(*many, DONE), run(*many[1:], DONE)))


def chunk(**delta: Any) -> str:
    """Return a chunk of a chat completion."""
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def tool(index: int | None, id_: str, name: str, arguments: str) -> str:
    """Return a chunk with a piece of a tool call."""
    function = {"name": name, "arguments": arguments}
    call: dict[str, Any] = {"id": id_, "function": function}
    return chunk(tool_calls=[call if index is None else {**call, "index": index}])


STOP = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
BOT, GRAPHS = (
    ServiceFlow("bot", {"/bot": ("POST",)}, find_dialect(name))
    for name in ("chat-completions", "langgraph")
)
SERVICES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "annotations": (
        [chunk(content="a b"), STOP, "[DONE]"],
        [chunk(content="a ")[:-1] + ',"p":"x"}', chunk(content="b"), STOP, "[DONE]"],
        ["annotation chunk p"],
    ),
    "tool calls told otherwise": (
        [tool(0, "A", "f", '{"x":1}'), tool(1, "B", "g", "{}"), STOP],
        [tool(None, "C", "f", '{"x": 1}'), tool(None, "D", "g", "{}"), STOP],
        [],
    ),
    "a tool call less": (
        [tool(0, "A", "f", "{}"), tool(1, "B", "g", "{}"), STOP],
        [tool(0, "B", "g", "{}"), STOP],
        ["event_missing call"],
    ),
}


@pytest.mark.parametrize("row", SERVICES)
def test_services(row: str) -> None:
    """What they say is compared, and what stands beside it is slight."""
    legacy, graph, expected = SERVICES[row]
    found = compared(run(*legacy), run(*graph), flow=BOT)
    assert brief(found) == expected
    assert found.equal == (expected in ([], ["annotation chunk p"]))


ROWS = tomllib.loads(Path(__file__).with_name("services.toml").read_text("utf-8"))


def between(dialect: str, legacy: str, graph: str, rules: Rules = NONE) -> Comparison:
    """Compare streams of two services, each its events' data, a line each."""
    begin = "event: custom\ndata: " if dialect == "langgraph" else "data: "
    runs = [
        run(*(f"{begin}{one}\n\n" for one in text.split("\n") if one), raw=True)
        for text in (legacy, graph)
    ]
    flow = ServiceFlow("bot", {}, find_dialect(dialect))
    return compared(runs[0], runs[1], flow=flow, rules=rules)


@pytest.mark.parametrize("row", ROWS["pairs"], ids=lambda row: row["name"])
def test_streams_of_services(row: dict[str, Any]) -> None:
    """What providers and frameworks send differs in what is meant alone."""
    rules = read_rules(f"[[ignore]]\npath = {row['rule']!r}") if "rule" in row else NONE
    found = between(row["dialect"], row["legacy"], row["graph"], rules)
    told = [" ".join(filter(None, (one.kind, one.path, one.shape))) for one in found.differences]
    assert (found.damage, sorted(told)) == ("", sorted(row.get("differs", ())))


@pytest.mark.parametrize("row", ROWS["waived"], ids=lambda row: row["name"])
def test_what_one_event_adds_is_a_cause_of_its_own(row: dict[str, Any]) -> None:
    """A waiver of what `waived` has more than legacy hides nothing that `graph` has."""
    waived, open_ = (
        {one.cause("bot") for one in between(row["dialect"], row["legacy"], row[graph]).differences}
        for graph in ("waived", "graph")
    )
    assert waived
    assert open_ - waived


def test_an_answer_that_is_no_stream_is_one_event() -> None:
    """As JSON."""
    answers = [run(text, raw=True) for text in ('{"a":1,"b":2}', '{"b": 2, "a": 1}', '{"a":1}')]
    assert compared(answers[0], answers[1], flow=BOT).equal
    assert brief(compared(answers[0], answers[2], flow=BOT)) == ["event_changed body b"]


@pytest.mark.parametrize(
    ("others", "expected"),
    [("0123", []), ("023", ["event_missing updates"]), ("0132", ["event_moved updates"])],
)
def test_numbered_ids_are_new_ones_too(others: str, expected: list[str]) -> None:
    """An event less gives all ids behind it other numbers, and that is no difference."""

    def update(run_id: str, number: str) -> str:
        message = {"content": f"r{number}", "id": f"{run_id}{number}"}
        return f"event: updates\ndata: {json.dumps({'node': {'messages': [message]}})}\n\n"

    legacy = run(*(update("a", number) for number in "0123"), raw=True)
    graph = run(*(update("b", number) for number in others), raw=True)
    assert brief(compared(legacy, graph, flow=GRAPHS)) == expected


def test_differences_come_in_the_order_of_time() -> None:
    """With what stands there as JSON."""
    found = compared(
        run((1, noted(1)), (5, said("a")), (9, DONE)), run((1, noted(2)), (6, said("b")), (9, DONE))
    )
    assert found.differences == (
        Difference("event_changed", "noted", "note", "1", "2", 1000),
        Difference("text", "text", "", '"a"', '"b"', 5000),
    )
    assert HELD_US == 1_000_000
