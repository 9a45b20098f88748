"""Order: what readers of stores and streams rely on, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from compare.findings import general_path, kind_of
from contract.flows.companion import COMPANION
from contract.operations import OPERATIONS
from contract.records import PlayRecord, RunRecord
from cutover.selftest.exchanges import exchange
from tests.compare.pairs import findings


def behind(run: RunRecord, frames: dict[str, int], usual: int = 0) -> RunRecord:
    """Say behind how many frames each call was made, by its site and operation."""
    plays = tuple(
        msgspec.structs.replace(play, frames=frames.get(f"{play.op}@{play.site}", usual))
        for play in run.plays
    )
    return msgspec.structs.replace(run, plays=plays)


def places(*runs: RunRecord) -> list[str]:
    """List the kinds and places of causes."""
    return [f"{kind_of(one)} {general_path(one.path)}" for one in findings(*runs)]


def test_calls_between_other_frames_are_equal() -> None:
    """A stack may ask sooner or later: only the last frame says that all is done."""
    control, candidate = exchange()
    assert not places(behind(control, {}), behind(candidate, {"put@reply": 5, "now@prompt": 3}))


@pytest.mark.parametrize("reads", ["now@prompt", "stream@reply", "lookup@model"])
def test_what_does_not_last_has_no_order(reads: str) -> None:
    """A clock may be read when the stream has ended."""
    control, candidate = exchange()
    ended = len(candidate.frames)
    assert not places(behind(control, {}), behind(candidate, {reads: ended}))


def test_a_write_behind_the_end_is_one_cause() -> None:
    """A client that has the end finds no reply in the store; nor is the lock free."""
    control, candidate = exchange()
    ended = len(candidate.frames)
    moved = {"put@reply": ended, "release@message": ended}
    found = findings(behind(control, {}), behind(candidate, moved))
    assert [one.path for one in found] == ["order.END.conversations.put@reply"]
    one = found[0]
    assert one.legacy == "conversations.put@reply → locks.release@message → END"
    assert one.graph == "END → conversations.put@reply → locks.release@message"


def test_runs_of_earlier_versions_have_no_order_with_frames() -> None:
    """Nor have those of stacks behind an address, whose calls come by another way."""
    control, candidate = exchange()
    ended = len(candidate.frames)
    assert not places(behind(control, {}, usual=-1), behind(candidate, {"put@reply": ended}))


def test_the_order_of_an_operation_is_declared() -> None:
    """Every write lasts, and reads of stores that are written to have an order with those."""
    orders = {row.label: row.order for row in OPERATIONS.values()}
    assert all(orders[row.label] == "lasting" for row in OPERATIONS.values() if row.kind == "write")
    assert orders["locks.release"] == "lasting"
    stores = {label for label, order in orders.items() if order == "store"}
    memories = {"memory.recall", "memory.near", "memory.progress"}
    assert stores == {*memories, "conversations.find", "conversations.history"}


def test_a_question_is_shown_once_it_is_stored() -> None:
    """Who answers at once must find it: its frame is one that effects have an order with."""
    frames = (
        'event: text\ndata: {"content":"Shall I?"}\n\n',
        'event: hitl\ndata: {"hitl_id":"h"}\n\n',
        "event: done\ndata: {}\n\n",
    )

    def run(role: str, before: int) -> RunRecord:
        first, second = exchange()
        play = PlayRecord(port="human", op="open", site="ask", how="exact", entry=0, frames=before)
        made = first if role == "serving" else second
        entry = msgspec.structs.replace((first.tape or ())[0], port="human", op="open", site="ask")
        return msgspec.structs.replace(
            made,
            frames=tuple(enumerate(frames)),
            plays=(play,),
            tape=(entry,) if role == "serving" else None,
            outcome="paused",
        )

    alike = findings(run("serving", 1), run("shadow", 0), wire=COMPANION)
    assert "frame_order" not in map(kind_of, alike)
    found = findings(run("serving", 1), run("shadow", 2), wire=COMPANION)
    assert "order.hitl.human.open@ask" in [one.path for one in found]
