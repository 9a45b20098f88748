"""What the endpoint captures: the runs that served, their whole streams, and shadows."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from cutover.errors import Failed, Left, Pause
from cutover.records import RunRecord
from effects.pauses import Pauses
from harness import root
from harness.config import ConfigRefused, parse
from harness.live import LiveSettings
from harness.root import equal_shadow
from loadtests.simulator import Answer, Cut
from router.captures import CaptureReader, Captures, Store
from router.shadow import Shadows
from tests.router.test_endpoint import CHAT
from tests.support.client import Client
from tests.support.stage import Stage

pytestmark = pytest.mark.virtual

KEY = "0123456789abcdef"


class Capturing:
    """An application whose captures lie in a folder."""

    def __init__(self, stage: Stage, folder: Path, **tables: Any) -> None:
        captures = {"url": str(folder), "key": KEY, **tables.pop("captures", {})}
        self.stage, self.folder = stage, folder
        self.settings = parse({"captures": captures, **tables})
        self.captures: Captures | None = None

    async def run(self, *clients: Client, **fields: Any) -> None:
        """Serve clients one after the other, as a process does from its start to its end."""
        async with root.capturing(self.settings) as self.captures:
            app = root.application(
                LiveSettings(self.settings), self.stage.world, captures=self.captures
            )
            async with app.router.lifespan_context(app):
                for number, one in enumerate(clients):
                    one.app = app
                    await one.post("/chat/sse", CHAT | {"message_id": f"m{number}"} | fields)

    @property
    def lines(self) -> list[RunRecord]:
        """What is stored."""
        return list(CaptureReader(Store(str(self.folder))))


def client(**fields: Any) -> Client:
    """Return a client that is told its application later."""
    return Client(FastAPI(), **fields)


async def test_a_run_is_captured_as_its_client_got_it(stage: Stage, tmp_path: Path) -> None:
    """With the tape, redacted, and with what was in force."""
    capturing, one = Capturing(stage, tmp_path, flows={"chat": {}}), client()
    await capturing.run(one, content="write to john@example.com")
    [line] = capturing.lines
    assert (line.exchange, line.stack) == (one.headers["x-cutover-exchange"], "legacy")
    assert "<email:" in line.request
    assert "john@" not in str(line)
    assert line.tape is not None
    assert line.versions.keys() == {"config", "code"}
    assert len(line.frames) == len(one.pieces)


async def test_the_first_turn_of_a_sticky_conversation_is_drawn(
    stage: Stage, tmp_path: Path
) -> None:
    """And so counts for the gate; later ones are pinned."""
    share = {"enable_langgraph": True, "langgraph_percent": 50.0, "sticky": "chat_id"}
    capturing = Capturing(stage, tmp_path, flows={"chat": share})
    await capturing.run(client(), client(), chat_id="c")
    assert [line.why for line in capturing.lines] == ["percent", "pinned"]


async def test_the_share_is_of_route_keys(stage: Stage, tmp_path: Path) -> None:
    """A shadow is captured where its exchange is."""
    flows = {"chat": {"shadow_percent": 100.0}}
    none = Capturing(stage, tmp_path / "none", captures={"percent": 0.0}, flows=flows)
    await none.run(client())
    assert none.lines == []
    some = Capturing(stage, tmp_path / "some", captures={"percent": 30.0}, flows=flows)
    clients = [client() for _ in range(20)]
    await some.run(*clients)
    served = {line.exchange for line in some.lines if line.role == "serving"}
    assert 0 < len(served) < len(clients)
    assert {line.exchange for line in some.lines if line.role == "shadow"} <= served


async def test_the_events_by_which_the_router_ends_a_stream_are_in_its_line(
    stage: Stage, tmp_path: Path
) -> None:
    """A failure's, behind what the stack has said."""
    stage.sim.script([Answer(text="a b c d", fault=Cut(2))] * 3)
    capturing, one = Capturing(stage, tmp_path, flows={"chat": {}}), client()
    await capturing.run(one)
    [line] = capturing.lines
    assert isinstance(line.outcome, Failed)
    assert [frame.data for frame in line.frames] == one.pieces
    assert b"ERROR" in line.frames[-1].data or b"END" in line.frames[-1].data


async def test_a_paused_exchange_is_captured_with_its_question_and_so_is_what_follows(
    stage: Stage, tmp_path: Path
) -> None:
    """The stream that ends in the question, and the continued one."""
    capturing = Capturing(stage, tmp_path, flows={"ops": {}})
    asking, answering = client(), client()
    async with root.capturing(capturing.settings) as captures:
        app = root.application(LiveSettings(capturing.settings), stage.world, captures=captures)
        async with app.router.lifespan_context(app):
            asking.app = answering.app = app
            await asking.post("/ops/react", {"session_id": "s", "input": "restart web"})
            waiting = await Pauses(stage.world.database).open_of("ops", "s")
            assert waiting is not None
            decision = {"approval_id": waiting.id, "approved": False, "by": "ann"}
            await answering.post("/ops/resume", decision)
    first, second = capturing.lines
    assert isinstance(first.outcome, Pause)
    assert [frame.data for frame in first.frames] == asking.pieces
    rest = [frame.data for frame in second.frames][-len(answering.pieces) :]
    assert rest == answering.pieces


async def test_what_a_client_left_is_captured_as_such(stage: Stage, tmp_path: Path) -> None:
    """It has no shadow."""
    flows = {"chat": {"shadow_percent": 100.0}}
    capturing = Capturing(stage, tmp_path, flows=flows)
    await capturing.run(client(leaves_after=3))
    [line] = capturing.lines
    assert line.outcome == Left()


async def test_a_serving_run_is_captured_before_its_shadow_ends(
    stage: Stage, tmp_path: Path
) -> None:
    """And a shadow behind it, with its calls by their place on the tape."""
    capturing = Capturing(stage, tmp_path, flows={"chat": {"shadow_percent": 100.0}})
    async with root.capturing(capturing.settings) as captures:
        assert captures is not None
        shadows = Shadows(equal_shadow)
        app = root.application(
            LiveSettings(capturing.settings), stage.world, shadows=shadows, captures=captures
        )
        one = Client(app)
        await one.post("/chat/sse", CHAT)
        asked = stage.model_calls
        while not shadows.offered:  # noqa: ASYNC110 - the exchange settles in a task
            await asyncio.sleep(0.01)
        running = asyncio.create_task(shadows.run())
        await shadows.settled()
        running.cancel()
        await asyncio.wait({running})
    assert (shadows.ledger, stage.model_calls) == ({"equal": 1}, asked)
    serving, shadow = capturing.lines
    assert (serving.role, shadow.role) == ("serving", "shadow")
    assert serving.exchange == shadow.exchange == one.headers["x-cutover-exchange"]
    assert shadow.tape is None
    assert shadow.versions == serving.versions
    assert {play.how for play in shadow.plays} == {"tape"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"url": "nosuch://bucket"}, "captures: Protocol not known: nosuch"),
        ({"redact_paths": ["user"]}, "captures: path 'user': begin with"),
        ({"redact_patterns": {"id": "("}}, "captures: pattern 'id': no regular expression"),
        ({"key": "short"}, "captures.key: .* at least 16"),
        ({"key": "env:NO_SUCH_KEY"}, "captures.key: .*NO_SUCH_KEY is not set"),
    ],
)
async def test_captures_that_cannot_be_are_refused(table: dict[str, Any], problem: str) -> None:
    """With the key's name, before anything is served."""
    with pytest.raises(ConfigRefused, match=problem):
        async with root.capturing(parse({"captures": {"url": "c", "key": KEY} | table})):
            pass


async def test_a_key_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length counts, not that of its name."""
    monkeypatch.setenv("K", KEY)
    table = parse({"captures": {"url": "c", "key": "env:K"}}).captures
    assert table is not None
    assert table.key == KEY
