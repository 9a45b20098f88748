"""Replaying one exchange: what is run, what it is compared with, and what goes wrong."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.blobs import without_blobs
from contract.flows import SPECS
from contract.flows.chat import CHAT
from contract.records import RunRecord
from cutover.replay.parts import Skipped
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Losses, Replayed, Replayer
from cutover.replay.sides import Side, Sides, sides_of
from cutover.selftest.stream_faults import SCENE
from cutover.wiring.stacks import StackNotLoaded
from tests.cutover.replay.broken import MARK
from tests.support.planted_faults import served

HERE = "tests.cutover.replay.stacks"
BROKEN = "tests.cutover.replay.broken"
PLAIN = 12

pytestmark = pytest.mark.virtual


def none(_: str) -> bytes:
    """Hold no blob."""
    raise AssertionError


async def replayed(
    batch: list[RunRecord], stack: str, lost: Losses | None = None
) -> Replayed | Skipped:
    """Replay an exchange on a stack."""
    replayer = Replayer(sides_of(stack), PlayOptions(), SPECS)
    return await replayer.replay(tuple(batch), none, lost or {}, lambda *_: None)


def causes(done: Replayed | Skipped) -> list[tuple[str, str]]:
    """Compare what was kept once more; gives layer and path of every cause."""
    assert isinstance(done, Replayed)
    pair = pair_of(done.runs)
    assert isinstance(pair, Pair)
    found = Comparer(CHAT).compare(pair)
    return [(one.layer, one.path) for one in found if one.after is None]


@pytest.fixture(scope="module")
def marked() -> list[RunRecord]:
    """Return one exchange on which broken stacks break."""
    body = msgspec.structs.replace(SCENE.body, message_id=f"{MARK}-1")
    (batch,) = served([replace(SCENE, body=body)])
    return [run for run in batch if run.role == "serving"]


async def test_a_replay_stands_against_the_other_stack(exchanges: list[list[RunRecord]]) -> None:
    """The serving line, which has the tape, then the two that are compared."""
    done = await replayed(exchanges[PLAIN], "legacy")
    assert isinstance(done, Replayed)
    assert [(run.role, run.stack) for run in done.runs] == [
        ("serving", "legacy"),
        ("shadow", "graph"),
        ("replay", "legacy"),
    ]
    assert (done.equal, done.basis) == (True, "legacy as it is now → graph as recorded")


async def test_a_replay_stands_against_its_own_past(alone: list[list[RunRecord]]) -> None:
    """With nothing else to compare it with."""
    done = await replayed(alone[PLAIN], "legacy")
    assert isinstance(done, Replayed)
    assert [(run.role, run.stack) for run in done.runs] == [
        ("serving", "legacy"),
        ("replay", "legacy"),
    ]
    assert (done.equal, done.basis) == (True, "legacy as recorded → legacy as it is now")


async def test_of_a_redacted_recording_both_stacks_are_replayed(
    exchanges: list[list[RunRecord]],
) -> None:
    """And nothing is compared with what was recorded."""
    batch = [msgspec.structs.replace(run, redacted=True) for run in exchanges[PLAIN]]
    done = await replayed(batch, f"{HERE}:WRONG_FINAL_TEXT")
    assert isinstance(done, Replayed)
    assert [(run.role, run.stack) for run in done.runs] == [
        ("serving", "legacy"),
        ("replay", "legacy"),
        ("replay", "graph"),
    ]
    assert done.basis == "legacy as it is now → graph as it is now"
    assert causes(done) == [("text", "final")]
    assert all(run.redacted for run in done.runs)


async def test_a_new_call_is_a_finding(alone: list[list[RunRecord]]) -> None:
    """A stack that asks for what no tape holds is not a crash of the replay."""
    for stack, path in (("NEW_CALL", "memory.recall@new[0]"), ("NEW_SITE", "ids.new@reply→new")):
        done = await replayed(alone[PLAIN], f"{HERE}:{stack}")
        assert isinstance(done, Replayed)
        assert causes(done) == [("effects", path)]
        assert done.outcome == "failed"


async def test_a_crash_is_a_finding_of_the_outcome(marked: list[RunRecord]) -> None:
    """One cause."""
    done = await replayed(marked, f"{BROKEN}:CRASHING")
    assert causes(done) == [("outcome", "→failed.crash")]


async def test_a_stack_that_hangs_is_given_up(marked: list[RunRecord]) -> None:
    """After its time; the next exchange has its turn."""
    done = await replayed(marked, f"{BROKEN}:HANGING")
    assert causes(done) == [("outcome", "→timeout.replay_timeout")]
    assert isinstance(done, Replayed)
    assert not done.lingers


async def test_a_stack_that_does_not_let_go_is_told_of(marked: list[RunRecord]) -> None:
    """Its process must be replaced."""
    before = asyncio.all_tasks()
    done = await replayed(marked, f"{BROKEN}:RELUCTANT")
    assert isinstance(done, Replayed)
    assert done.lingers
    await asyncio.wait(asyncio.all_tasks() - before)


async def test_a_run_that_was_lost_is_not_tried_again(marked: list[RunRecord]) -> None:
    """It took its process with it; that is a finding of the outcome."""
    key = marked[0].exchange, "graph"
    blocked = await replayed(marked, f"{BROKEN}:NAMED", {key: "blocked"})
    assert causes(blocked) == [("outcome", "→timeout.blocked")]
    died = await replayed(marked, f"{BROKEN}:NAMED", {key: "died"})
    assert causes(died) == [("outcome", "→failed.process_died")]


async def test_what_cannot_be_replayed_says_why(exchanges: list[list[RunRecord]]) -> None:
    """Counted by reason, never guessed at."""
    serving, shadow = exchanges[PLAIN]
    but = msgspec.structs.replace
    assert serving.request is not None
    assert serving.tape is not None
    other = but(serving.request, body=msgspec.Raw(b'{"message_id":7}'))
    foreign = (but(serving.tape[0], op="teleport"), *serving.tape[1:])
    for runs, reason, unread in (
        ([shadow], "it has no serving run", True),
        ([but(serving, flow="chit")], "unknown flow 'chit'", True),
        ([but(serving, tape=None)], "no tape", False),
        ([but(serving, request=None)], "no tape", False),
        ([but(serving, outcome="cancelled")], "cancelled", False),
        ([serving, but(shadow, role="fallback", outcome="cancelled")], "cancelled", False),
        ([but(serving, request=other)], "its request is none of today's", True),
        ([but(serving, tape=foreign)], "its tape is none of today's", True),
    ):
        assert await replayed(runs, "legacy") == Skipped(reason, unread)
    assert await replayed([serving], f"{HERE}:EMPTY") == Skipped("stack 'graph' has no flow 'chat'")


async def test_a_tape_that_ends_before_the_run_is_no_verdict(
    alone: list[list[RunRecord]],
) -> None:
    """What comes after the cut is not known."""
    (serving,) = alone[PLAIN]
    assert serving.tape is not None
    cut = [
        msgspec.structs.replace(entry, end="cut") if entry.port == "model" else entry
        for entry in serving.tape
    ]
    done = await replayed([msgspec.structs.replace(serving, tape=tuple(cut))], "legacy")
    assert done == Skipped("not comparable: cancelled")


async def test_blobs_are_put_back(alone: list[list[RunRecord]]) -> None:
    """The lines that are written hold the texts; a blob that is missing is a reason."""
    (serving,) = alone[PLAIN]
    assert serving.request is not None
    long = "图" * 30_000
    held: dict[str, bytes] = {}

    def hold(content: bytes) -> str:
        held["f" * 64] = content
        return "f" * 64

    body = msgspec.json.decode(serving.request.body)
    body["content"] = long
    request = msgspec.structs.replace(serving.request, body=msgspec.Raw(msgspec.json.encode(body)))
    away = without_blobs(msgspec.structs.replace(serving, request=request), hold)
    replayer = Replayer(sides_of("legacy"), PlayOptions(), SPECS)
    done = await replayer.replay((away,), held.__getitem__, {}, lambda *_: None)
    assert isinstance(done, Replayed)
    assert done.runs[0].request == request


async def test_what_the_replay_itself_gets_wrong_is_counted(
    alone: list[list[RunRecord]],
) -> None:
    """The next exchange has its turn."""

    def broken(_: str, __: str) -> None:
        raise ZeroDivisionError

    replayer = Replayer(sides_of("legacy"), PlayOptions(), SPECS)
    done = await replayer.replay(tuple(alone[PLAIN]), none, {}, broken)
    assert done == Skipped("the replay itself failed: ZeroDivisionError", unread=True)


async def test_one_stack_is_enough_where_nothing_is_redacted(
    alone: list[list[RunRecord]],
) -> None:
    """After the migration there is no legacy to load; redacted recordings say so."""
    replayer = Replayer(
        Sides(Side("graph", "graph_impl:FLOWS"), Side("legacy", "")), PlayOptions(), SPECS
    )
    done = await replayer.replay(tuple(alone[PLAIN]), none, {}, lambda *_: None)
    assert isinstance(done, Replayed)
    redacted = (msgspec.structs.replace(alone[PLAIN][0], redacted=True),)
    assert await replayer.replay(redacted, none, {}, lambda *_: None) == Skipped(
        "redacted, and there is no stack 'legacy' to run beside"
    )


async def test_a_stack_that_cannot_be_loaded_says_why() -> None:
    """Whatever it is."""
    for where in (f"{HERE}:NO_MAPPING", f"{HERE}:NOWHERE", "tests.no.such:FLOWS"):
        with pytest.raises(StackNotLoaded):
            Replayer(sides_of(where), PlayOptions(), SPECS)


async def test_a_stack_that_ends_the_program_when_imported_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the command would pass, having compared nothing."""
    (tmp_path / "leaving_stack.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StackNotLoaded, match="SystemExit: 0"):
        Replayer(sides_of("leaving_stack:FLOWS"), PlayOptions(), SPECS)
