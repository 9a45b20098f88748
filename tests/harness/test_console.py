"""The console without a browser: who may read and change, what is shown, and that text is text."""

import asyncio
import logging
import os
import tomllib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import StreamingResponse

from compare.differences import Difference
from compare.report.document import files, make_report
from compare.rollout import Scope, decide
from compare.rows import PairRow
from compare.verdict import Read
from cutover import Exchange, FlowSpec
from cutover import Request as Asked
from cutover.errors import Completed, Failed
from cutover.records import encode
from effects.pauses import Pauses
from harness import root
from harness.commands.gate import Judged
from harness.config import load
from harness.console.app import Console, Replaced
from harness.console.board import RECENT, SPAN_SECONDS, SPANS, STACKS, Board
from harness.live import LiveSettings
from router.exchange import Served
from rules.flows import FLOWS
from tests.compare.captured import HOSTILE
from tests.compare.drawn import Drawn
from tests.support.client import Client
from tests.support.stage import staged

pytestmark = pytest.mark.virtual

TOKEN = "a token that opens"
FILE = f"""[server]
flag_token = "{TOKEN}"
[console]
reports = "report"
[captures]
url = "captures"
key = "0123456789abcdef"
[flows.chat]
enable_langgraph = true # since Monday
langgraph_percent = 100.0
"""
CHAT = {"message_id": "m", "content": f"What is 12 * 7? {HOSTILE}"}
WHO = {"who": "Ann", "why": "half are served well", "token": TOKEN, "flow": "chat"}
OWN = {"hx-request": "true", "sec-fetch-site": "same-origin"}
ROWS = tomllib.loads(Path(__file__).with_name("console.toml").read_text("utf-8"))


class Shown:
    """A router with a console over a folder's file, and a client of the console."""

    def __init__(self, console: Console, router: Client, live: LiveSettings) -> None:
        self.console, self.router, self.live = console, router, live

    async def get(
        self, path: str, method: str = "GET", own: dict[str, str] = OWN, **more: Any
    ) -> httpx.Response:
        """Ask the console as a page of its own would."""
        transport = httpx.ASGITransport(self.console)
        more["headers"] = own | more.get("headers", {})
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8082") as one:
            return await one.request(method, path, **more)

    async def change(self, **form: str) -> httpx.Response:
        """Post the form."""
        return await self.get("/console/change", "POST", data=WHO | form)


@pytest.fixture
async def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shown]:
    """A console; graph crashes behind its third event."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cutover.toml"
    path.write_text(FILE)
    settings, board = load(path), Board()
    async with staged() as stage, root.capturing(settings) as captures:
        assert captures is not None
        captures.batch_seconds = 0.0
        live, world = LiveSettings(settings, path), stage.world
        observers, pauses = [board.observe], Pauses(world.database, world.clock)
        app = root.application(live, world, captures=captures, observers=observers, crash_after=3)
        assert settings.console is not None
        console = Console(app.state.process, pauses, settings, settings.console, board)
        yield Shown(console, Client(app), live)


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.update([tag, *(name for name, _ in attrs)])


@pytest.mark.parametrize("row", ROWS["read"], ids=str)
async def test_another_site_reads_nothing(shown: Shown, row: dict[str, Any]) -> None:
    """Nor one whose name points here; a link to the page itself may stand anywhere."""
    answer = await shown.get(row["path"], headers=row.get("headers", {}))
    assert answer.status_code == row["status"]
    if "text/html" in answer.headers["content-type"]:
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("row", ROWS["change"], ids=str)
async def test_who_may_not_change_changes_nothing(shown: Shown, row: dict[str, Any]) -> None:
    """The file is as it was; a form without htmx's header comes from another site, too."""
    form, path, file = WHO | row["form"], "/console/change", shown.live.path or Path()
    assert (await shown.get(path, "POST", data=form, own={})).status_code == 403
    answer = await shown.get(path, "POST", data=form, headers=row.get("headers", {}))
    assert answer.status_code == row["status"]
    assert (file.read_text() == FILE) == (row["status"] != 200)


async def test_a_change_is_in_the_file_and_in_force_at_once(
    shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    """Who made it, and why, is in the log; the token is not."""
    caplog.set_level(logging.WARNING)
    for form, expected in (
        ({"what": "share", "percent": "12.5"}, "langgraph_percent = 12.5"),
        ({"what": "shadow", "percent": "100"}, "shadow_percent = 100.0"),
        ({"what": "off"}, "enable_langgraph = false # since Monday"),
    ):
        answer = await shown.change(**form, who="Ann\nEve")
        assert "In force" in answer.text
        assert expected in (shown.live.path or Path()).read_text()
    now = shown.live.flows["chat"]
    assert (now.shares.enabled, now.shares.percent, now.shadow_percent) == (False, 12.5, 100.0)
    assert caplog.text.count("who='Ann Eve' why='half are served well'") == 3
    assert TOKEN not in caplog.text
    assert "0 % of chat goes to graph" in (await shown.get("/console")).text


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_without_a_token_the_page_is_read_only(shown: Shown, token: str) -> None:
    """Its buttons cannot be pressed, and no token is the right one."""
    server = shown.console.settings.server.model_copy(update={"flag_token": token})
    shown.console.settings = shown.console.settings.model_copy(update={"server": server})
    assert ("read-only" in (await shown.get("/console")).text) == (not token)
    assert (await shown.change(what="off", token=token)).is_success == bool(token)


@pytest.mark.parametrize("row", ROWS["beyond"], ids=str)
async def test_beyond_loopback_the_token_is_the_password(shown: Shown, row: dict[str, Any]) -> None:
    """Whatever name the reader gives."""
    shown.console.table = shown.console.table.model_copy(update={"host": "192.0.2.1"})
    headers = {"authorization": row["given"], "host": "console.example"}
    answer = await shown.get("/console", headers=headers)
    assert answer.status_code == row["status"]
    assert ("www-authenticate" in answer.headers) == (row["status"] == 401)


async def test_an_exchange_is_listed_and_opens_its_tape(shown: Shown) -> None:
    """Hostile text of the user, also where the model says it again, is text."""
    empty = await shown.get("/console")
    assert "No exchange of chat has ended" in empty.text
    await shown.router.post("/chat/sse", CHAT)
    page = ""
    while "taken over</span> stack_failed" not in page:
        await asyncio.sleep(1)
        page = (await shown.get("/console")).text
    assert '<td class="number served-legacy">1</td>' in page
    assert '<td class="number taken-over">1</td>' in page
    assert "stack_failed × 1" in page
    [link] = [one for one in page.split('"') if one.startswith("/console/tape")]
    assert "not stored, or not yet" in (await shown.get("/console/tape?exchange=1&at=1")).text
    tape = ""
    while "served by legacy" not in tape:  # a thread writes it
        tape = (await shown.get(link.replace("&amp;", "&"))).text
    assert "&lt;script&gt;" in tape
    assert "no other run to compare with" in tape
    assert not {"script", "img"} & _Tags(tape).found.keys()
    shown.console.settings = shown.console.settings.model_copy(update={"captures": None})
    assert "without [captures]" in (await shown.get(link.replace("&amp;", "&"))).text


def leave(text: str) -> None:
    """Write a report and a verdict in which a text stands wherever one may."""
    found = Difference("text", text, legacy=text, graph=text)
    row = PairRow(exchange=text, flow="chat", at=1, state="different", differences=(found,))
    read, today = Read(files=1, lines=2, damage={}), date(2026, 11, 29)
    report = make_report([row], [], read, made_at=1, today=today, waivers={}, exemplars={})
    Path("report").mkdir(exist_ok=True)
    Path("report/report.json").write_bytes(files(report)["report.json"])
    drawn = Drawn(behind=0.5).frame(code=text)
    decision = decide(drawn, Scope("chat", 0.5, "now", int(drawn["at"].max())))
    Path("report/gate-chat.json").write_bytes(encode(Judged(decision, 0, (1.0, 50.0))))


async def test_captures_that_hang_hold_up_no_other(shown: Shown) -> None:
    """More readers than threads wait in vain; the page is there, and so are those who serve."""
    pipe = await asyncio.to_thread(hanging)
    tape = "/console/tape?exchange=e&at=1000000"
    answers = await asyncio.gather(*(shown.get(tape) for _ in range(9)))
    assert {"not in time" in one.text for one in answers} == {True}
    assert (await shown.change(what="off")).is_success
    os.close(os.open(pipe, os.O_RDWR))


def hanging() -> Path:
    """Make a file of captures that has no writer."""
    folder = Path("captures/flow=chat/date=1970-01-01")
    folder.mkdir(parents=True)
    os.mkfifo(pipe := folder / f"{1_000_000_000:020}-x.jsonl.zst")
    return pipe


async def test_what_others_leave_is_shown_as_text(shown: Shown) -> None:
    """A report, a verdict, a refused configuration, codes: tags are as with plain text."""
    pages = []
    for text in ("plain", HOSTILE):
        leave(text)
        shown.live.refuse("file", text)
        served = ended("graph", 0.0, 1.0, Failed(text))
        served.id = text
        shown.console.board.observe(served)
        await asyncio.sleep(3)
        pages.append((await shown.get("/console")).text)
    assert all(one in pages[1] for one in ("Gate: roll back", "1, 50 %"))
    counts = [_Tags(page).found for page in pages]
    assert counts[1]["script"] == counts[0]["script"] == 5
    assert counts[1].keys() == counts[0].keys()


@pytest.mark.parametrize("content", ["{", "", "[" * 5000, '"\udcff"', '{"v": 2}'])
def test_a_file_that_is_being_written_changes_nothing(tmp_path: Path, content: str) -> None:
    """What was read before stays until the file is whole."""
    path = tmp_path / "report.json"
    file = Replaced(path, list[int])
    file.read()
    assert file.content is None
    for text, expected in (("[1]", [1]), (content, [1]), ("[2]", [2])):
        path.write_text(text, errors="surrogateescape")
        file.read()
        assert file.content == expected


async def test_events_come_when_something_has_changed(shown: Shown) -> None:
    """All parts at first, then what changes; they end when the router stops."""
    scope = {"type": "http", "method": "GET", "path": "/console/events", "headers": []}
    answer = await shown.console.events(Request(scope | {"query_string": b""}))
    assert isinstance(answer, StreamingResponse)
    events = cast("AsyncIterator[bytes]", answer.body_iterator)
    first = [(await anext(events)).split(b"\n")[0] for _ in range(3)]
    assert first == [b"event: now", b"event: newest", b"event: chart"]
    await shown.change(what="off")
    assert b"0 % of chat goes to graph" in await anext(events)
    shown.console.process.streams.draining = True
    assert len([one async for one in events]) <= 2


def ended(assigned: str, first: float, whole: float, outcome: Any) -> Served:
    """Return an exchange of chat that has ended."""
    flow = FLOWS["chat"]
    assert isinstance(flow, FlowSpec)
    request: Asked[Any, Any] = Asked(CHAT, None, flow.path)
    served = Served("exchange", flow, request, Exchange(), assigned, began=5.0)
    served.first_text, served.ended, served.outcome = 5.0 + first, 5.0 + whole, outcome
    return served


TIMES = st.floats(0, 100)
ENDS = st.tuples(st.integers(0, 2 * SPANS * SPAN_SECONDS), st.sampled_from(STACKS), TIMES, TIMES)


@given(st.lists(ENDS, max_size=60))
async def test_figures_are_those_of_the_exchanges(
    ends: list[tuple[int, str, float, float]],
) -> None:
    """Of the last five minutes, as numpy counts them; the chart has each span of an hour once."""
    now = 0
    board = Board(lambda: now * 1_000_000_000)
    for at, stack, first, whole in sorted(ends):
        now = at
        outcome = Failed("x") if first > whole else Completed()
        board.observe(ended(stack, first, whole, outcome))
    number = now // SPAN_SECONDS
    for stack, figures in board.figures("chat").items():
        oldest = (number - RECENT + 1) * SPAN_SECONDS
        recent = [one for one in ends if one[1] == stack and one[0] >= oldest]
        assert figures.served.total() == len(recent)
        assert figures.failed.total() == sum(first > whole for _, _, first, whole in recent)
        if recent:
            firsts = [(5.0 + first - 5.0) * 1e3 for _, _, first, _ in recent]
            expected = np.quantile(firsts, (0.5, 0.95), method="inverted_cdf")
            assert figures.times[0] == tuple(expected)
    now += SPAN_SECONDS
    times, *columns = board.chart("chat")
    assert all(len(one) == len(times) <= SPANS for one in columns)
    drawn = {at for at, value in zip(times, columns[2], strict=True) if value is not None}
    graph = {at // SPAN_SECONDS * SPAN_SECONDS for at, stack, *_ in ends if stack == "graph"}
    kept = {at for at in graph if at in times}
    assert drawn == kept
