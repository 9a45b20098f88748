"""The console's application: a page, its events, the tapes, and the form that changes shares."""

import asyncio
import logging
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from anyio import CapacityLimiter, fail_after
from anyio.to_thread import run_sync
from fastapi.sse import format_sse_event
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from compare.report import page
from compare.report.document import Report
from cutover.errors import Refused
from effects.pauses import Pauses
from harness.commands.gate import Judged
from harness.config import LOOPBACK, ConsoleTable, Settings
from harness.console.board import RECENT, SPAN_SECONDS, STACKS, Board
from harness.console.tape import find
from harness.services import flow_of
from router.edge import read_body
from router.gateway.providers import equal
from router.telemetry.operators import MOST_BYTES
from router.telemetry.status import Process

log = logging.getLogger("cutover.console")

FOLDER: Final = Path(__file__).parent
LOOK_SECONDS, WAIT_SECONDS, STORED_SECONDS = 2.0, 0.5, 10.0
"""How often is looked at what others write; how long a page waits for that, or for a tape."""
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_MOMENT: Final = re.compile(r"[0-9]{1,19}")
_environment = page.environment(FOLDER / "pages")


@dataclass(slots=True)
class Replaced:
    """A JSON file that other processes replace, read again when it has changed."""

    path: Path
    kind: Any
    content: Any = None
    _changed: int = 0

    def read(self) -> None:
        """Take what it holds, unless that is half written, or of another version."""
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if (changed := self.path.stat().st_mtime_ns) != self._changed:
                self._changed = changed
                self.content = msgspec.json.decode(self.path.read_bytes(), type=self.kind)


@dataclass(slots=True, eq=False)
class Console:
    """The ASGI application, for readers on this machine, or for those who bear the token."""

    process: Process
    pauses: Pauses
    settings: Settings
    table: ConsoleTable
    board: Board = field(default_factory=Board)
    _drawn: dict[str, tuple[int, tuple[str, str]]] = field(default_factory=dict)
    """By flow the second in which it was drawn, and the page's two parts."""
    _drawing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _report: Replaced = field(init=False)
    _judged: Mapping[str, Replaced] = field(init=False)
    _paused: Mapping[str, int] | None = None
    _looking: asyncio.Task[None] | None = None
    _looked: float = float("-inf")
    _pool: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """A folder that hangs takes two threads, and none of asyncio's own."""
    _app: Starlette = field(init=False)

    def __post_init__(self) -> None:
        folder = Path(self.table.reports)
        self._report = Replaced(folder / "report.json", Report)
        self._judged = {
            flow: Replaced(folder / f"gate-{flow}.json", Judged) for flow in self.process.flows
        }
        # The look of all pages lies beside their templates.
        assets = StaticFiles(directory=FOLDER / "assets", packages=[("compare", "report")])
        routes = [
            Route("/console", self.page),
            Route("/console/events", self.events),
            Route("/console/tape", self.tape),
            Route("/console/report", self.report),
            Route("/console/change", self.change, methods=["POST"]),
            Mount("/console/assets", assets),
        ]
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless it comes from another site or from who may not read."""
        app = self._app if (against := self._against(Request(scope))) is None else against
        await app(scope, receive, send)

    def _against(self, request: Request) -> Response | None:
        """Return why a request is not answered.

        A name that is not this machine's is that of a page which had it point here; a header of
        htmx cannot come from another site's page without its being asked for.
        """
        headers, local = request.headers, self.table.host in LOOPBACK
        asked = URL(scope={**request.scope, "server": None})  # else this is what a bad name becomes
        if local and asked.hostname not in LOOPBACK:
            return _html("The console answers to localhost and 127.0.0.1.", 403)
        opened = headers.get("sec-fetch-mode") == "navigate" and request.url.path == "/console"
        same = headers.get("sec-fetch-site", "none") in {"same-origin", "none"}
        posted = request.method not in {"GET", "HEAD"}
        if not (same or opened) or (posted and (not same or "hx-request" not in headers)):
            return _html("Not from another site.", 403)
        if local or self._knows(_password(headers.get("authorization", ""))):
            return None
        challenge = {"www-authenticate": 'Basic realm="cutover", charset="UTF-8"'}
        return _html("The password is the token of the flags.", 401, challenge)

    def _knows(self, token: str) -> bool:
        known = self.settings.server.flag_token
        return bool(known) and equal(token, known)

    async def page(self, request: Request) -> Response:
        """Answer with the page of a flow."""
        flow = self._flow(request)
        now, newest = await self._parts(flow)
        parts = {"flow": flow, "flows": [*self.process.flows], "now": now, "newest": newest}
        can_change = bool(self.settings.server.flag_token and self.process.operating.edit)
        return _html(_render("console.html.j2", can_change=can_change, **parts))

    async def events(self, request: Request) -> Response:
        """Send the parts of the page when they have changed, and the chart's columns."""
        flow = self._flow(request)

        async def changed() -> AsyncIterator[bytes]:
            sent, number = ("", ""), -1
            over = False
            while not over:
                over = self.process.streams.draining
                parts = await self._parts(flow)
                for name, part, before in zip(("now", "newest"), parts, sent, strict=True):
                    if part != before:
                        yield format_sse_event(event=name, data_str=part)
                if self.board.number != number:
                    number = self.board.number
                    columns = msgspec.json.encode(self.board.chart(flow)).decode()
                    yield format_sse_event(event="chart", data_str=columns)
                sent = parts
                await asyncio.sleep(1)

        return StreamingResponse(changed(), media_type="text/event-stream", headers=_HEADERS)

    async def tape(self, request: Request) -> Response:
        """Answer with both runs of an exchange."""
        flow, captures = self._flow(request), self.settings.captures
        exchange, ended = (request.query_params.get(one, "") for one in ("exchange", "at"))
        found, why = None, "without [captures] no exchange is stored"
        if captures and exchange and _MOMENT.fullmatch(ended):
            asked = captures.url, flow_of(flow, self.settings), exchange, int(ended)
            why = "it is not stored, or not yet: captures are written every five seconds"
            try:
                with fail_after(STORED_SECONDS):
                    found = await run_sync(find, *asked, limiter=self._pool, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001 - a file system may raise anything
                why = f"the captures cannot be read, or not in time: {type(error).__name__}"
        return _html(_render("tape.html.j2", pair=found, why=why))

    async def report(self, _: Request) -> Response:
        """Answer with the newest report of `cutover diff`."""
        path = Path(self.table.reports) / "report.html"
        if not path.is_file():
            return _html("There is no report yet.", 404)
        return FileResponse(path, headers=_HEADERS)

    async def change(self, request: Request) -> Response:
        """Change a switch or a share, for who bears the token and says why."""
        try:
            return _html(escape(await self._change(request)))
        except Refused as error:
            return _html(escape(error.detail or error.code), error.status)

    async def _change(self, request: Request) -> str:
        """Carry out a posted form; return what is in force then. Raises `Refused`."""
        body = await read_body(request.receive, MOST_BYTES)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        edit, flow = self.process.operating.edit, form.get("flow", "")
        if edit is None or not self._knows(form.get("token", "")):
            log.warning("flow=%r not changed: a wrong token", flow)
            raise Refused(401, "unauthorised", "this needs the token")
        who, why = (" ".join(form.get(one, "").split()) for one in ("who", "why"))
        if not who or not why:
            raise Refused(422, "bad_flags", "say who changes it, and why")
        try:
            percent = float(form.get("percent", "0"))
            known: dict[str, dict[str, Any]] = {
                "off": {"enable_langgraph": False},
                "share": {"enable_langgraph": True, "langgraph_percent": percent},
                "shadow": {"shadow_percent": percent},
            }
            changes = known[form.get("what", "")]
        except (ValueError, KeyError) as error:
            raise Refused(422, "bad_flags", "a share is a number of percent") from error
        now = await edit({"flow": flow} | changes)
        log.warning("flow=%s changed=%s who=%r why=%r", flow, changes, who, why)
        if any(now[name] != value for name, value in changes.items()):
            return "Written to the file; not in force: a flag provider says otherwise."
        return f"In force: {', '.join(f'{name} = {value}' for name, value in changes.items())}"

    def _flow(self, request: Request) -> str:
        asked = request.query_params.get("flow", next(iter(self.process.flows)))
        if asked not in self.process.flows:
            raise HTTPException(404, "There is no such flow.")
        return asked

    async def _parts(self, flow: str) -> tuple[str, str]:
        """Return the page's parts that change, drawn at most once a second for all readers."""
        loop = asyncio.get_running_loop()
        async with self._drawing:
            if loop.time() > self._looked + LOOK_SECONDS:
                self._looked = loop.time()
                if self._looking is None or self._looking.done():
                    self._looking = asyncio.create_task(self._look())
                await asyncio.wait({self._looking}, timeout=WAIT_SECONDS)
            second = int(loop.time())
            if (drawn := self._drawn.get(flow)) is None or drawn[0] != second:
                drawn = self._drawn[flow] = second, self._draw(flow)
        return drawn[1]

    async def _look(self) -> None:
        """Look at the pauses, the newest report and the newest verdicts."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                self._paused = await self.pauses.open_counts()
        except (TimeoutError, SQLAlchemyError, OSError):
            self._paused = None  # /readyz says why
        for file in (self._report, *self._judged.values()):
            await run_sync(file.read)

    def _draw(self, flow: str) -> tuple[str, str]:
        report = self._report.content
        causes = [one for one in report.causes if one.flow == flow] if report else []
        now = _render(
            "now.html.j2",
            flow=flow,
            status=self.process.report(),
            figures=self.board.figures(flow),
            stacks=STACKS,
            minutes=RECENT * SPAN_SECONDS // 60,
            paused="unknown" if self._paused is None else f"{self._paused.get(flow, 0):,}",
            gate=self._judged[flow].content,
            report=report,
            causes=causes,
        )
        return now, _render("newest.html.j2", flow=flow, lines=self.board.newest(flow))


def _password(authorization: str) -> str:
    scheme, _, given = authorization.partition(" ")
    with suppress(ValueError):
        if scheme.lower() == "basic":
            return b64decode(given).decode().partition(":")[2]
    return ""


def _render(template: str, **values: Any) -> str:
    return _environment.get_template(template).render(values)


def _html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(text, status, _HEADERS | dict(headers or {}))
