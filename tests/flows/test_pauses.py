"""Pauses: in every pair of stacks, answered twice, at once, late, after a restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import select, update

from cutover.errors import Failed, Pause
from cutover.records import PauseRecord, TapeRecord, decode, encode
from effects.database import PauseRow
from effects.pauses import Pauses
from harness import root
from harness.config import Settings
from harness.live import LiveSettings
from loadtests.simulator import Answer
from router.pauses import PausedExchanges
from tests.support.databases import audit_lines
from tests.support.stage import STACKS, Stage, Told, forgetting, staged

pytestmark = pytest.mark.virtual

WORDS = "show the memory then delete temporary *.log then delete temporary *.tmp"
DAY = 86_400.0


def opened(folder: Path) -> AbstractAsyncContextManager[Stage]:
    """Open a stage on what the folder holds: a database, and files that workers may delete."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    database = f"sqlite+aiosqlite:///{folder}/pauses.db"
    return staged(database, workers={"temporary_root": str(files)})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The folder of the files that may be deleted: two logs and another one."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a.log", "b.log", "c.tmp"):
        (folder / name).write_text("x")
    return folder


@pytest.fixture
async def stage(tmp_path: Path, files: Path) -> AsyncIterator[Stage]:
    """A stage with three files."""
    del files  # made by now
    async with opened(tmp_path) as one:
        yield one


async def ask(stage: Stage, name: str = "legacy", words: str = WORDS) -> tuple[Told, str]:
    """Serve a request that pauses, and return its question's id."""
    request = stage.request("ops", {"input": words, "session_id": "s"})
    told = await stage.tell("ops", request, [name])
    return told, told.question


async def decide(
    stage: Stage, question: str, name: str = "graph", *, approved: bool = True, by: str = "ann"
) -> Told:
    """Answer a question and continue."""
    body = {"approval_id": question, "approved": approved, "by": by}
    return await stage.resume("ops", body, [name])


def left(folder: Path) -> set[str]:
    """Return the files that are left."""
    return {one.name for one in folder.iterdir()}


def frames(told: Told) -> list[str]:
    """Return the names of the events."""
    return [name for name, _ in told.events]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("again", STACKS)
@pytest.mark.parametrize("second", STACKS)
@pytest.mark.parametrize("first", STACKS)
async def test_two_approvals_in_a_row(
    tmp_path: Path, files: Path, first: str, second: str, again: str, *, restart: bool
) -> None:
    """Whatever stacks go on, also after a restart, each call is made once, each event told once."""
    asked: list[int] = []
    told: list[Told] = []
    names = [first, second, again]
    async with opened(tmp_path) as stage:
        one, question = await ask(stage, first)
        told.append(one)
        asked.append(stage.model_calls)
        while not restart and len(told) < 3:
            told.append(await decide(stage, question, names[len(told)]))
            question = getattr(told[-1].outcome, "question", "")
            asked.append(stage.model_calls)
    while len(told) < 3:
        async with opened(tmp_path) as stage:
            told.append(await decide(stage, question, names[len(told)]))
            question = getattr(told[-1].outcome, "question", "")
            asked.append(asked[-1] + stage.model_calls)
            lines = [one.what for one in await audit_lines("s")]
            assert lines == ["executed", *["approved", "executed"] * (len(told) - 1)]
    assert asked == [2, 3, 4]
    assert [frames(one) for one in told] == [
        ["step", "result", "step", "approval_required", "done"],
        ["progress", "result", "step", "approval_required", "done"],
        ["progress", "result", "final", "done"],
    ]
    assert told[-1].events[-1] == ("done", {"status": "completed"})
    assert told[-1].calls["worker.system.memory"] == 1
    assert told[-1].calls["worker.system.delete_temporary"] == 2
    assert told[-1].calls["model.chat"] == 4
    assert left(files) == set()


@pytest.mark.parametrize("second", STACKS)
@pytest.mark.parametrize("first", STACKS)
async def test_an_approval_then_a_rejection(
    stage: Stage, files: Path, first: str, second: str
) -> None:
    """What was approved is done, what was rejected is not."""
    _, question = await ask(stage, first)
    told = await decide(stage, question, second)
    asked = stage.model_calls
    told = await decide(stage, told.question, first, approved=False, by="bob")
    assert frames(told) == ["final", "done"]
    assert told.events[-1] == ("done", {"status": "rejected"})
    assert stage.model_calls == asked
    assert left(files) == {"c.tmp"}
    assert [(one.who, one.what) for one in await audit_lines("s")] == [
        ("assistant", "executed"),
        ("ann", "approved"),
        ("ann", "executed"),
        ("bob", "rejected"),
    ]


async def test_a_session_names_its_open_question(stage: Stage, files: Path) -> None:
    """`session_id` stands for the approval that the session waits for, and for none without."""
    body = {"session_id": "s", "approved": True, "by": "ann"}
    assert (await stage.resume("ops", body, ["graph"])).refusal == (404, "unknown_question")
    await ask(stage)
    assert isinstance((await stage.resume("ops", body, ["graph"])).outcome, Pause)
    told = await stage.resume("ops", body, ["legacy"])
    assert told.events[-1] == ("done", {"status": "completed"})
    assert left(files) == set()


async def test_of_two_resumes_at_once_one_wins(stage: Stage, files: Path) -> None:
    """The other gets 409, and the instruction is executed once."""
    _, question = await ask(stage)
    both = await asyncio.gather(
        decide(stage, question, "legacy"), decide(stage, question, "graph"), return_exceptions=False
    )
    [lost] = [one for one in both if one.error]
    [won] = [one for one in both if not one.error]
    assert lost.refusal == (409, "already_continued")
    assert isinstance(won.outcome, Pause)
    assert left(files) == {"c.tmp"}


async def test_the_same_answer_again_is_the_same(stage: Stage) -> None:
    """It continues what has failed, from any process; a different one gets 409."""
    _, question = await ask(stage)
    stage.sim.script([Answer(text='{"final":"cut', finish=None)])
    failed = await decide(stage, question)
    assert failed.outcome == Failed("model_truncated", "world", "model_truncated")
    assert frames(failed) == ["progress", "result", "error", "done"]
    different = await decide(stage, question, approved=False)
    assert different.refusal == (409, "answered_otherwise")
    again = await decide(stage, question, "legacy", by="bob")
    assert frames(again) == ["progress", "result", "step", "approval_required", "done"]
    assert again.calls["worker.system.delete_temporary"] == 1
    assert [(one.who, one.what) for one in await audit_lines("s")][1:] == [
        ("ann", "approved"),
        ("ann", "executed"),
    ]
    assert (await decide(stage, question)).refusal == (409, "already_continued")
    assert (await decide(stage, question, approved=False)).refusal == (409, "answered_otherwise")


async def test_an_expired_question_gets_410(stage: Stage, files: Path) -> None:
    """A day is the limit; nothing is executed."""
    _, question = await ask(stage)
    clock = stage.world.clock
    stage.pauses = PausedExchanges(Pauses(stage.world.database, lambda: clock() + 2 * DAY))
    assert (await decide(stage, question)).refusal == (410, "expired")
    assert len(left(files)) == 3
    assert (await decide(stage, "no-such-question")).refusal == (404, "unknown_question")


@pytest.mark.parametrize("percent", [0.0, 100.0])
async def test_a_new_turn_expires_the_open_question(
    stage: Stage, files: Path, percent: float
) -> None:
    """Over HTTP, whichever stack serves: 410 for the old one, problem+json for a bad body."""
    share = {"enable_langgraph": True, "langgraph_percent": percent}
    settings = Settings.model_validate({"flows": {"ops": share}})
    transport = httpx.ASGITransport(root.application(LiveSettings(settings), stage.world))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        react = {"session_id": "s", "input": "delete temporary files"}
        first = (await client.post("/ops/react", json=react)).text
        pending = (await client.get("/ops/sessions/s")).json()["pending"]
        assert pending["approval_id"] in first
        await client.post("/ops/react", json=react)
        answer = {"approved": True, "by": "ann"}
        late = await client.post(
            "/ops/resume", json=answer | {"approval_id": pending["approval_id"]}
        )
        assert (late.status_code, late.json()["code"]) == (410, "expired")
        assert len(left(files)) == 3
        bad = await client.post("/ops/resume", json=answer)
        assert (bad.status_code, bad.headers["content-type"]) == (422, "application/problem+json")
        done = await client.post("/ops/resume", json=answer | {"session_id": "s"})
        assert done.text.endswith('event: done\ndata: {"status":"completed"}\n\n')
        assert (await client.get("/ops/sessions/none")).status_code == 404
    assert left(files) == set()
    await asyncio.sleep(1)


class Full(Pauses):
    """A store that takes no pause."""

    async def put(self, _: PauseRecord) -> None:
        """Raise what a full disk raises."""
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", STACKS)
async def test_a_pause_that_cannot_be_stored_is_no_pause(stage: Stage, name: str) -> None:
    """The question does not go out, and the stream ends in failure frames."""
    stage.pauses = PausedExchanges(Full(stage.world.database, stage.world.clock))
    request = stage.request("ops", {"input": WORDS, "session_id": "s"})
    told = await stage.tell("ops", request, [name])
    assert frames(told) == ["step", "result", "step", "error", "done"]
    assert told.events[-2:] == [
        ("error", {"code": "pause_not_stored"}),
        ("done", {"status": "failed"}),
    ]


@pytest.mark.parametrize("second", STACKS)
@pytest.mark.parametrize("first", STACKS)
async def test_an_unknown_outcome_is_said_and_not_repeated(
    stage: Stage, files: Path, first: str, second: str
) -> None:
    """In the result, as the turn's error, in the audit log, and in the conversation."""
    _, question = await ask(stage)
    normal, stage.pauses = stage.pauses, forgetting(stage, "worker.system.delete_temporary")
    lost = await decide(stage, question, first)
    assert frames(lost) == ["progress", "error", "done"]
    assert isinstance(lost.outcome, Failed)
    assert lost.outcome.code == "claim_lost"
    assert left(files) == {"c.tmp"}
    (files / "a.log").write_text("x")  # would be deleted by a repetition
    stage.pauses = normal
    asked = stage.model_calls
    told = await decide(stage, question, second)
    said = "不知道 system.delete_temporary 是否已经完成，没有重做，请自行确认。"
    assert [data for name, data in told.events if name != "progress"] == [
        {"worker": "system", "action": "delete_temporary", "ok": False, "message": said},
        {"code": "outcome_unknown"},
        {"status": "failed"},
    ]
    assert left(files) == {"a.log", "c.tmp"}
    assert stage.model_calls == asked
    assert [one.what for one in await audit_lines("s")][-1] == "outcome_unknown"


@pytest.mark.parametrize("name", STACKS)
async def test_a_stored_tape_that_does_not_fit_ends_the_stream(
    stage: Stage, files: Path, name: str
) -> None:
    """A call before the answer that the paused run did not make is never performed."""
    _, question = await ask(stage)
    engine, this = stage.world.database.engine, PauseRow.id == question
    async with engine.begin() as connection:
        stored = (await connection.execute(select(PauseRow.tape).where(this))).scalar_one()
        tape = decode(stored, TapeRecord)
        kept = tuple(one for one in tape.entries if one.name != "conversations.history")
        changed = encode(replace(tape, entries=kept))
        await connection.execute(update(PauseRow).where(this).values(tape=changed))
    told = await decide(stage, question, name)
    assert told.events == [("error", {"code": "resume_mismatch"}), ("done", {"status": "failed"})]
    assert len(left(files)) == 3
    async with engine.begin() as connection:
        await connection.execute(update(PauseRow).where(this).values(tape=b"torn"))
    assert (await decide(stage, question, name)).error
    state = select(PauseRow.state).where(this)
    async with engine.connect() as connection:
        assert (await connection.execute(state)).scalar_one() == "answered"
