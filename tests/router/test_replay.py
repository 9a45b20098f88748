"""Replays of captures: what a stack makes of stored tapes, redacted or not, whole or damaged."""

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutover import Event, Request, Stack, effect
from cutover.errors import Failed, Left, Pause
from cutover.records import EntryRecord, FrameRecord, PlayRecord, RunRecord, TapeRecord
from harness import root
from loadtests.simulator import Answer, Cut
from router.captures import CaptureReader, Captures, Redactor, Store
from router.captures.replay import Part, Replay, Target, replayed
from router.driver import Candidate
from rules.flows import FLOWS
from tests.flows.samples import SAMPLES
from tests.support.ask import ASK, Ask, Done, Said
from tests.support.served import ask
from tests.support.stage import Stage, breaking

pytestmark = pytest.mark.virtual

REDACTOR = Redactor(b"0123456789abcdef", paths=["request.user_name"])


MAIL = "I am john.doe@example.com, +49 151 23456789. What is 12 * 7?"
PERSONAL: dict[str, dict[str, Any]] = {
    "chat": {"message_id": "mail", "content": MAIL, "user_name": "Ada Lovelace", "chat_id": "mail"},
    "companion": {"session_id": "mail", "message": MAIL, "user_id": "john.doe@example.com"},
    "session": {"session_id": "mail", "message": MAIL, "user_id": "john.doe@example.com"},
}
"""Requests whose answers quote what is redacted."""


async def put(store: Store, redactor: Redactor | None, *exchanges: Any) -> None:
    """Capture exchanges that have ended."""
    async with Captures(store, redactor) as captures:
        for one in exchanges:
            captures.served(one)


def candidates(flow: str) -> dict[str, Candidate]:
    """Return the stacks of a flow."""
    return {name: Candidate(name, stack) for name, stack in root.stacks(flow).items()}


async def replay(store: Store, stack: str, redactor: Redactor | None) -> dict[str, int]:
    """Replay a store by a stack, as a process does from its start to its end."""
    targets = {name: Target(FLOWS[name], candidates(name)) for name in FLOWS}
    async with Captures(store, None) as out:
        work = Replay(stack, targets, root.equal, out, redactor, done=replayed(store, stack))
        await work.run(CaptureReader(store))
    assert not out.dropped
    return dict(work.counts)


async def tell_all(stage: Stage, stack: str) -> list[Any]:
    """Serve a request of every kind; the pauses are answered, and go on."""
    told = []
    for sample in SAMPLES.values():
        stage.sim.script(sample.answers)
        request = stage.request(sample.flow, dict(sample.body), sample.path, **sample.options)
        told.append((await stage.tell(sample.flow, request, [stack])).exchange)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("redactor", [None, REDACTOR], ids=["as_it_was", "redacted"])
@pytest.mark.parametrize("served", ["legacy", "graph"])
async def test_either_stack_replays_every_flow_as_equal(
    stage: Stage, tmp_path: Path, served: str, redactor: Redactor | None
) -> None:
    """From the disk, and without a call of a model; each replay is stored beside the run."""
    store = Store(str(tmp_path))
    told = await tell_all(stage, served)
    await put(store, redactor, *told)
    asked = stage.model_calls
    for stack in ("legacy", "graph"):
        counts = await replay(store, stack, redactor)
        assert counts == {"read": len(told), "equal": len(told)}
    assert stage.model_calls == asked
    lines = [line for line in CaptureReader(store) if line.role == "replay"]
    assert len(lines) == 2 * len(told)
    assert {(line.policy, line.served, line.tape) for line in lines} == {("play", served, None)}


async def tell_odd(stage: Stage) -> list[Any]:
    """Serve what is not simply whole: refused, taken over, broken off, paused and continued."""
    ops = {"input": "Delete temporary *.log then show the disks", "session_id": "s"}
    odd = [
        await stage.tell("chat", stage.request("chat", {"message_id": "unknown"}), ["legacy"]),
        await stage.tell(
            "chat",
            stage.request("chat", dict(SAMPLES["chat"].body), yield_interval=0.0),
            [stage.candidate("chat", "graph", breaking(4, "exception")), "legacy"],
        ),
    ]
    stage.sim.script([Answer(text="one two three", fault=Cut(after=1))])
    asked = stage.request("session", {"message": "Hello", "session_id": "cut", "user_id": "u"})
    odd += [
        await stage.tell("session", asked, ["graph"]),
        paused := await stage.tell("ops", stage.request("ops", ops), ["legacy"]),
    ]
    assert isinstance(paused.outcome, Pause)
    approval = {"approval_id": paused.outcome.question, "approved": True, "by": "ann"}
    odd.append(await stage.resume("ops", approval, ["graph"]))
    for flow, body in PERSONAL.items():
        odd.append(await stage.tell(flow, stage.request(flow, body), ["legacy"]))
    return [one.exchange for one in odd]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_what_ended_oddly_replays_as_equal(stage: Stage, tmp_path: Path, stack: str) -> None:
    """A refusal, a takeover, a stream that broke off, a pause and its end, personal data."""
    store = Store(str(tmp_path))
    told = await tell_odd(stage)
    kinds = [type(one.outcome).__name__ for one in told]
    assert kinds[:5] == ["Refusal", "Completed", "Failed", "Pause", "Completed"]
    assert kinds[5:] == ["Completed"] * len(PERSONAL)
    await put(store, REDACTOR, *told)
    assert await replay(store, stack, REDACTOR) == {"read": 8, "equal": 8}
    lines = list(CaptureReader(store))
    assert sum(line.redacted for line in lines) >= 2 * len(PERSONAL)
    assert "john.doe@" not in str(lines)


@pytest.mark.slow
@pytest.mark.parametrize(("served", "stack"), [("legacy", "graph"), ("graph", "legacy")])
async def test_what_is_counted_in_redacted_texts_is_no_difference(
    stage: Stage, tmp_path: Path, served: str, stack: str
) -> None:
    """The stack that served is replayed, too: it counts the tokens of the same texts."""
    store = Store(str(tmp_path))
    body = {"session_id": "s", "message": MAIL, "user_id": "u", "user_name": "Ada"}
    told = await stage.tell("pipeline", stage.request("pipeline", body), [served])
    await put(store, REDACTOR, told.exchange)
    assert await replay(store, stack, REDACTOR) == {"read": 1, "equal": 1}
    assert [line.stack for line in CaptureReader(store)] == [served, stack]


# --- Stacks of a flow of our own


@effect("orders.find")
async def find(item: str) -> str:
    """Return what there is of an item, which names the one to write to."""
    return f"{item}: write to sales@example.com"


async def clerk(request: Request[Ask, Any]) -> AsyncIterator[Event]:
    """Answer with what is found, and an address of the stack's own."""
    found = await find(f"{request.body.text} for desk@example.com")
    yield Said(f"{found} or to desk@example.com")
    yield Done()


async def hasty(_: Request[Ask, Any]) -> AsyncIterator[Event]:
    """Answer without having looked."""
    yield Said("tea for desk@example.com: write to sales@example.com or to desk@example.com")
    yield Done()


async def curious(request: Request[Ask, Any]) -> AsyncIterator[Event]:
    """Look twice, and answer the same."""
    await find("coffee")
    async for event in clerk(request):
        yield event


async def broken(_: Request[Ask, Any]) -> AsyncIterator[Event]:
    """Fail."""
    yield Said("tea")
    raise ZeroDivisionError


async def served_asks(store: Store, count: int, *, redactor: Redactor | None = REDACTOR) -> None:
    """Capture exchanges of the clerk, named by their numbers."""
    exchanges = []
    for number in range(count):
        exchange = (await ask(ASK, Ask("tea"), clerk)).served
        exchange.id = f"e{number}"
        exchanges.append(exchange)
    await put(store, redactor, *exchanges)


async def replay_asks(
    store: Store,
    stack: Stack = clerk,
    *,
    part: str = "1/1",
    lines: Iterable[RunRecord] | None = None,
    redactor: Redactor | None = REDACTOR,
) -> dict[str, int]:
    """Replay exchanges of the clerk."""
    stacks = {"other": Candidate("other", stack), "stack 0": Candidate("stack 0", clerk)}
    targets, done = {"ask": Target(ASK, stacks)}, replayed(store, "other")
    async with Captures(store, None) as out:
        work = Replay("other", targets, root.equal, out, redactor, Part.of(part), done)
        await work.run(CaptureReader(store) if lines is None else lines)
    return dict(work.counts)


@pytest.mark.parametrize(
    ("stack", "state"),
    [(clerk, "equal"), (hasty, "different"), (curious, "different"), (broken, "failed")],
)
async def test_what_a_stack_does_otherwise_is_seen(
    tmp_path: Path, stack: Stack, state: str
) -> None:
    """Also where its own texts hold what was redacted, and in what it asks alone."""
    store = Store(str(tmp_path))
    await served_asks(store, 1)
    assert await replay_asks(store, stack) == {"read": 1, state: 1}
    assert "example.com" not in "".join(map(str, CaptureReader(store)))


def damaged(**fields: Any) -> Callable[[RunRecord], RunRecord]:
    """Return what changes a line."""
    return lambda line: msgspec.structs.replace(line, **fields)


def on_tape(**fields: Any) -> Callable[[RunRecord], RunRecord]:
    """Return what changes a line's tape."""
    return lambda line: msgspec.structs.replace(
        line, tape=msgspec.structs.replace(line.tape or TapeRecord(), **fields)
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damaged(request="{"), "damaged"),
        (damaged(request='{"text": 5}'), "damaged"),
        (damaged(request='"(not stored: RecursionError)"'), "damaged"),
        (damaged(path="/elsewhere"), "damaged"),
        (damaged(frames=(FrameRecord(0, "data: {\n\n"),)), "damaged"),
        (damaged(frames=(FrameRecord(0, 'data: {"type": "sung"}\n\n'),)), "damaged"),
        (damaged(plays=(PlayRecord("orders.find", "live", 9),)), "damaged"),
        (on_tape(entries=(EntryRecord("orders.find", "no hash", "{}", 0),)), "damaged"),
        (on_tape(incomplete=("orders.find",)), "incomplete"),
        (damaged(tape=None), "no_tape"),
        (damaged(role="fallback"), "no_tape"),
        (damaged(served="graph"), "incomplete"),
        (damaged(flow="sung"), "unknown_flow"),
        (damaged(outcome=Left()), "cut_short"),
        (damaged(outcome=Failed("server_stopped", "world")), "cut_short"),
    ],
)
async def test_what_cannot_be_replayed_is_counted(
    tmp_path: Path, change: Callable[[RunRecord], RunRecord], reason: str
) -> None:
    """It stops nothing: what stands beside it is replayed."""
    store = Store(str(tmp_path))
    await served_asks(store, 2)
    first, second = CaptureReader(store)
    assert await replay_asks(store, lines=[change(first), second]) == {
        "read": 2,
        reason: 1,
        "equal": 1,
    }


async def test_a_line_that_comes_late_completes_its_exchange(tmp_path: Path) -> None:
    """The lines of a takeover may stand in any order."""
    store = Store(str(tmp_path))
    heard = await ask(ASK, Ask("tea"), broken, curious)
    await put(store, None, heard.served)
    lines = list(CaptureReader(store))
    assert [line.role for line in lines] == ["serving", "fallback"]
    for order, state in ((lines[::-1], "equal"), (lines, "replayed_before")):
        counts = await replay_asks(store, curious, lines=order, redactor=None)
        assert counts == {"read": 1, state: 1}


async def test_parts_are_disjoint_and_make_the_whole(tmp_path: Path) -> None:
    """Whichever process replays which part."""
    store = Store(str(tmp_path))
    await served_asks(store, 30)
    counts = [await replay_asks(store, part=f"{number}/3") for number in (1, 2, 3)]
    assert all(one == {"read": one["equal"], "equal": one["equal"]} for one in counts)
    assert sum(one["equal"] for one in counts) == 30
    reader = CaptureReader(store)
    assert sum(line.role == "replay" for line in reader) == 30
    assert not reader.damage


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "-1/3", "1/0"])
def test_no_part_is_refused(text: str) -> None:
    """A part is a number of a count, the first is 1."""
    with pytest.raises(ValueError, match=r"part|int"):
        Part.of(text)


async def test_what_was_replayed_is_not_replayed_again(tmp_path: Path) -> None:
    """A process that was stopped goes on where its lines end."""
    store = Store(str(tmp_path))
    await served_asks(store, 9)
    served = list(CaptureReader(store))
    assert await replay_asks(store, lines=served[:4]) == {"read": 4, "equal": 4}
    assert await replay_asks(store) == {"read": 9, "replayed_before": 4, "equal": 5}
    reader = CaptureReader(store)
    assert sum(line.role == "replay" for line in reader) == 9
    assert not reader.damage
