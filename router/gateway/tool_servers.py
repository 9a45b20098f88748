"""The tool gateway: MCP servers behind the router, by the official SDK.

A call of a run is on its tape: performed where the run serves, played to every other. A call that
names no exchange passes as through any proxy. Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from hashlib import blake2b
from typing import Any, Final, NoReturn, TypeAlias, cast

import msgspec
from fastapi import FastAPI
from fastapi.utils import deep_dict_update
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParamsMeta,
)
from pydantic import BaseModel, ValidationError
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from contract.errors import CutoverError, EffectFailed, Fault
from contract.external import (
    IN_DOUBT,
    ExternalError,
    ExternalResult,
    ExternalUpdate,
    PerformedCall,
)
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN, Operation
from effects.loop_time import limit
from effects.tape import TapeSession
from effects.tools.mcp import McpConnection, McpSession
from router.gateway.correlation import calling_exchange, calling_session, named_exchange
from router.gateway.effects import unperformed
from router.gateway.entrance import Entrance
from router.gateway.openapi import tool_servers_document
from router.gateway.refusals import GatewayRefused, refusal_of
from router.http.connection import SlowClient, abort_connection, timed_send
from router.serving.performed import was_left_in_doubt

log = logging.getLogger(__name__)

REFUSED: Final = -32050
"""JSON-RPC code of calls the gateway refuses; the data has the `code`, as in other refusals."""
MAX_NAME: Final = 200
"""Characters of a tool's name: it becomes part of a site."""
IDEMPOTENCY_KEY: Final = "cutover/idempotency-key"
"""In the `_meta` of a call of an idempotent tool: the same in each run of an exchange."""
_REPEATABLE: Final = "arguments"
"""Key of a repeatable call on the tape: its arguments alone tell it from others."""
_LOST: Final = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT})
_SESSION: Final = "cutover.session"

Context: TypeAlias = ServerRequestContext[Any, Any]
Updates: TypeAlias = Callable[[], AsyncGenerator[ExternalUpdate, None]]
Request: TypeAlias = Callable[[McpSession, ProgressFnT], Awaitable[BaseModel]]


class ToolServers:
    """Answers calls of MCP servers at `/mcp/{server}`; serves within `running`."""

    def __init__(self, entrance: Entrance, connections: Mapping[str, McpConnection]) -> None:
        self._entrance = entrance
        self._connections = connections
        server: Server[Any] = Server(
            "cutover",
            # The server itself checks what a client repeats in headers.
            get_tool_input_schema=lambda _: None,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._manager = StreamableHTTPSessionManager(
            server, stateless=True, max_request_body_size=entrance.max_body_bytes
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Serve for as long as the block lasts."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message of a client; a disconnect cancels what is not a write of a run."""
        await self._entrance.serve(scope, receive, send, self._answer)

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        if scope["path_params"]["server"] not in self._connections:
            why = "[gateway] tool_servers names no such server"
            raise GatewayRefused(404, "unknown_server", why, param="server")
        session = calling_session(self._entrance.router, scope)
        if session is None and named_exchange(scope) is not None:
            # Never passed on: it may be a shadow's, later than its exchange.
            raise GatewayRefused(404, "unknown_exchange", "no such exchange is open here")
        scope[_SESSION] = session
        seconds = self._entrance.router.settings().limits.send_seconds
        try:
            async with timed_send(send, seconds) as timed:
                await self._manager.handle_request(scope, _received(body), timed)
        except SlowClient as unread:
            log.warning("tool call aborted: %s", unread)
            abort_connection(scope)

    async def _list(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        connection = self._connection(context)
        cursor = None if params is None else params.cursor
        site = f"mcp.{connection.name}"
        updates = _updates(connection, lambda session, _: session.list_page(cursor), EXTERNAL_READ)
        value = await _outcome(context, EXTERNAL_READ, site, {"cursor": cursor}, updates)
        page = ListToolsResult.model_validate(value)
        page.tools = [tool for tool in page.tools if connection.allows(tool.name)]
        return page

    async def _call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        connection = self._connection(context)
        name, arguments = params.name, params.arguments or {}
        if len(name) > MAX_NAME or not connection.allows(name):
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:MAX_NAME]}")
        operation = EXTERNAL_READ if connection.is_read_only(name) else EXTERNAL_RUN
        site = f"mcp.{connection.name}.{name}"
        key = ""
        meta: RequestParamsMeta | None = None
        if operation is EXTERNAL_RUN and connection.is_idempotent(name):
            exchange = calling_exchange(self._entrance.router, _scope(context))
            if exchange:
                named = {IDEMPOTENCY_KEY: _call_id(exchange, site, arguments)}
                key, meta = _REPEATABLE, cast("RequestParamsMeta", named)
        updates = _updates(
            connection,
            lambda session, progress: session.pass_call(name, arguments, progress, meta),
            operation,
        )
        shadowed = operation is EXTERNAL_READ and connection.shadow_reads
        value = await _outcome(
            context, operation, site, arguments, updates, key=key, shadowed=shadowed
        )
        return CallToolResult.model_validate(value)

    def _connection(self, context: Context) -> McpConnection:
        return self._connections[_scope(context)["path_params"]["server"]]


def add_tool_servers(app: FastAPI, servers: ToolServers) -> None:
    """Mount the tool gateway on an application, also below the address of an exchange."""
    for below in ("", "/exchanges/{exchange}"):
        app.router.routes.append(Route(f"{below}/mcp/{{server}}", servers, methods=["POST"]))
    deep_dict_update(app.state.document, tool_servers_document())


def _updates(connection: McpConnection, request: Request, operation: Operation) -> Updates:
    """Return what carries a request out: its progress and, last, its result."""

    async def updates() -> AsyncGenerator[ExternalUpdate, None]:
        reported: asyncio.Queue[ExternalUpdate | None] = asyncio.Queue()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            value = {"progress": progress, "total": total, "message": message}
            reported.put_nowait(ExternalUpdate(value))

        asking = _ask(connection, request, report, operation)
        work = asyncio.get_running_loop().create_task(asking, name="tool call")
        work.add_done_callback(lambda _: reported.put_nowait(None))
        try:
            while (update := await reported.get()) is not None:
                yield update
            yield ExternalUpdate(result=work.result())
        finally:
            work.cancel()
            await asyncio.wait({work})

    return updates


async def _ask(
    connection: McpConnection, request: Request, report: ProgressFnT, operation: Operation
) -> ExternalResult:
    """Ask the server; what it refuses is a result.

    Fault `effect_in_doubt` where a write was asked for and the answer was lost.
    """
    session = connection.session
    if session is None:
        return _failed(REFUSED, "the server is away", {"code": "server_away"})
    try:
        async with limit(connection.timeout):
            answer = await request(session, report)
    except MCPError as error:
        if error.code not in _LOST:
            return _failed(error.code, error.message, error.data)
    except TimeoutError:
        pass
    except (ValidationError, RuntimeError):  # the SDK's, of an answer it cannot read
        return _failed(INTERNAL_ERROR, "the server's answer is not as its schema says")
    else:
        return ExternalResult(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
    if operation.kind == "write":
        raise EffectFailed(Fault(IN_DOUBT))
    return _failed(CONNECTION_CLOSED, "the server did not answer")


def _failed(code: int, message: str, data: Any = None) -> ExternalResult:
    return ExternalResult(data, ExternalError(str(code), message))


def _received(body: bytes) -> Receive:
    """Return a body that was read as an application receives it; the entrance sees disconnects."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.get_running_loop().create_future()
        return messages.pop()

    return receive


async def _outcome(
    context: Context,
    operation: Operation,
    site: str,
    arguments: Any,
    updates: Updates,
    *,
    key: str = "",
    shadowed: bool = False,
) -> Any:
    """Return the result of a call, from its run's tape where it has one; report its progress.

    With a `key` it is made again where an earlier run left it in doubt. Raises `MCPError`.
    """
    session: TapeSession | None = _scope(context)[_SESSION]
    try:
        if session is None:
            return await _read(context, updates())
        call = PerformedCall.made(arguments, key, updates, shadowed=shadowed)
        while True:
            number = len(session.plays)
            try:
                return await _read(context, session.stream(operation, site, call))
            except EffectFailed as error:
                if not (key and was_left_in_doubt(session.plays[number], error)):
                    raise
    except CutoverError as error:
        _refuse(error)


async def _read(context: Context, stream: AsyncGenerator[ExternalUpdate, None]) -> Any:
    async with aclosing(stream):
        async for update in stream:
            if update.result is not None:
                return _value(update.result)
            await context.session.report_progress(**update.value)
    raise EffectFailed(Fault(IN_DOUBT))


def _call_id(exchange: str, site: str, arguments: Any) -> str:
    named = msgspec.json.encode([exchange, site, arguments], order="sorted")
    return blake2b(named, digest_size=16).hexdigest()


def _scope(context: Context) -> Scope:
    request: Any = context.request  # there in any case, over HTTP
    scope: Scope = request.scope
    return scope


def _value(result: ExternalResult) -> Any:
    error = result.error
    if error is None:
        return result.value
    if error.type == IN_DOUBT:
        raise EffectFailed(Fault(IN_DOUBT))
    raise MCPError(int(error.type), error.message, result.value)


def _refuse(error: CutoverError) -> NoReturn:
    refused = unperformed(error) if isinstance(error, EffectFailed) else refusal_of(error)
    raise MCPError(REFUSED, refused.message, {"code": refused.code}) from error
