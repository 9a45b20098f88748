"""The tool gateway: MCP servers behind the router, by the official SDK.

A call of a run is on its tape: performed where the run serves, played to every other. A call that
names no exchange passes as through any proxy. Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
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
    CompleteRequest,
    CompleteRequestParams,
    CompleteResult,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    GetPromptRequest,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParamsMeta,
    ServerCapabilities,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError
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
from router.context import TRACE_HEADER, trace_of
from router.gateway.back_channel import AnswerStream, BackChannel
from router.gateway.cancellations import Cancellations
from router.gateway.correlation import calling_exchange, calling_session, named_exchange
from router.gateway.effects import unperformed
from router.gateway.entrance import Entrance
from router.gateway.openapi import tool_servers_document
from router.gateway.refusals import GatewayRefused, refusal_of
from router.http.connection import SlowClient, abort_connection, timed_send
from router.http.endpoints import send_whole
from router.serving.performed import was_left_in_doubt
from router.stack import Headers

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
_STREAM: Final = "cutover.stream"
MAX_ROUNDS: Final = 10
"""Rounds of questions in one call."""
_INPUT_REQUIRED: Final = "input_required"
_ROUND: Final = {"input_responses", "request_state"}
_OFFERED: Final = ("resources", "prompts", "completions")
"""Capabilities that a server may lack."""
_READS: Final[tuple[tuple[type[Any], type[BaseModel], type[BaseModel]], ...]] = (
    (ListResourcesRequest, PaginatedRequestParams, ListResourcesResult),
    (ListResourceTemplatesRequest, PaginatedRequestParams, ListResourceTemplatesResult),
    (ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult),
    (ListPromptsRequest, PaginatedRequestParams, ListPromptsResult),
    (GetPromptRequest, GetPromptRequestParams, GetPromptResult),
    (CompleteRequest, CompleteRequestParams, CompleteResult),
)
_ANSWERS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "elicitation/create": TypeAdapter(ElicitResult),
    "sampling/createMessage": TypeAdapter(CreateMessageResult | CreateMessageResultWithTools),
}

Context: TypeAlias = ServerRequestContext[Any, Any]
Updates: TypeAlias = Callable[[], AsyncGenerator[ExternalUpdate, None]]
Request: TypeAlias = Callable[[McpSession, ProgressFnT], Awaitable[BaseModel]]


class ToolServers:
    """Answers calls of MCP servers at `/mcp/{server}`; serves within `running`."""

    def __init__(self, entrance: Entrance, connections: Mapping[str, McpConnection]) -> None:
        self._entrance = entrance
        self._connections = connections
        self._questions = BackChannel()
        self._cancellations = Cancellations()
        self._managers = {
            name: StreamableHTTPSessionManager(
                self._server(connection),
                stateless=True,
                max_request_body_size=entrance.max_body_bytes,
            )
            for name, connection in connections.items()
        }

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Serve for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message of a client; a disconnect cancels what is not a write of a run."""
        await self._entrance.serve(scope, receive, send, self._answer, trace=trace_in)

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        manager = self._managers.get(scope["path_params"]["server"])
        if manager is None:
            why = "[gateway] tool_servers names no such server"
            raise GatewayRefused(404, "unknown_server", why, param="server")
        session = calling_session(self._entrance.exchanges, scope)
        if session is None and named_exchange(scope) is not None:
            # Never passed on: it may be a shadow's, later than its exchange.
            raise GatewayRefused(404, "unknown_exchange", "no such exchange is open here")
        headers: Headers = scope["headers"]
        if self._questions.take(body) or self._cancellations.take(headers, body):
            await send_whole(send, 202, (), b"")
            return
        scope[_SESSION] = session
        seconds = self._entrance.exchanges.settings().limits.send_seconds
        try:
            async with timed_send(send, seconds) as timed:
                with self._cancellations.opened(headers, body) as call:
                    scope[_STREAM] = stream = AnswerStream(timed, call.begins)
                    try:
                        await manager.handle_request(scope, _received(body), stream)
                    except asyncio.CancelledError:
                        if not call.cancelled:
                            raise
                        call.end()
                        await stream.end()  # MCP wants no answer
        except SlowClient as unread:
            log.warning("tool call aborted: %s", unread)
            abort_connection(scope)

    def _server(self, connection: McpConnection) -> _Server:
        async def list_tools(
            context: Context, params: PaginatedRequestParams | None
        ) -> ListToolsResult:
            return await self._list(connection, context, params)

        async def call_tool(
            context: Context, params: CallToolRequestParams
        ) -> CallToolResult | InputRequiredResult:
            call = partial(self._call, connection, context)
            return cast(
                "CallToolResult | InputRequiredResult",
                await self._rounds(connection, context, params, call),
            )

        server = _Server(connection, on_list_tools=list_tools, on_call_tool=call_tool)
        for request, params_type, result in _READS:
            reading = partial(self._read, connection, request, result)
            method = str(request.model_fields["method"].default)
            server.add_request_handler(method, params_type, reading)
        return server

    async def _list(
        self, connection: McpConnection, context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        cursor = None if params is None else params.cursor
        updates = _updates(connection, lambda session, _: session.list_page(cursor), EXTERNAL_READ)
        # On no tape: whether a client lists tools in an exchange is its cache's affair.
        try:
            value = await _read(context, updates())
        except CutoverError as error:
            _refuse(error)
        page = ListToolsResult.model_validate(value)
        page.tools = [tool for tool in page.tools if connection.allows(tool.name)]
        return page

    async def _call(
        self, connection: McpConnection, context: Context, params: CallToolRequestParams
    ) -> BaseModel:
        self._admit(context)
        name = params.name
        if len(name) > MAX_NAME or not connection.allows(name):
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:MAX_NAME]}")
        arguments = _with_answers(params.arguments or {}, params)
        operation = EXTERNAL_READ if connection.is_read_only(name) else EXTERNAL_RUN
        site = f"mcp.{connection.name}.{name}"
        key = ""
        meta: RequestParamsMeta | None = None
        if operation is EXTERNAL_RUN and connection.is_idempotent(name):
            exchange = calling_exchange(self._entrance.exchanges, _scope(context))
            if exchange:
                named = {IDEMPOTENCY_KEY: _call_id(exchange, site, arguments)}
                key, meta = _REPEATABLE, cast("RequestParamsMeta", named)
        passed = params.model_copy(update={"meta": meta, "arguments": params.arguments or {}})
        updates = _updates(
            connection,
            lambda session, progress: session.pass_call(passed, progress),
            operation,
        )
        shadowed = operation is EXTERNAL_READ and connection.shadow_reads
        value = await _outcome(
            context, operation, site, arguments, updates, key=key, shadowed=shadowed
        )
        return _result(value, CallToolResult)

    async def _read(
        self,
        connection: McpConnection,
        request: type[Any],
        result: type[BaseModel],
        context: Context,
        params: Any,
    ) -> BaseModel:
        """Answer a request that changes nothing: it is on the tape by its method."""
        self._admit(context)

        async def read(params: Any) -> BaseModel:
            plain = None if params is None else params.model_copy(update={"meta": None})
            asking = request(params=plain)
            site = f"mcp.{connection.name}/{asking.method}"
            own = (
                plain.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_ROUND)
                if plain is not None
                else {}
            )
            updates = _updates(
                connection,
                lambda session, progress: session.pass_read(asking, progress),
                EXTERNAL_READ,
            )
            value = await _outcome(
                context,
                EXTERNAL_READ,
                site,
                _with_answers(own, plain),
                updates,
                shadowed=connection.shadow_reads,
            )
            return _result(value, result)

        return await self._rounds(connection, context, params, read)

    def _admit(self, context: Context) -> None:
        """Let a call of no exchange reach its server; raises `MCPError` where none may."""
        if _scope(context)[_SESSION] is None:
            try:
                self._entrance.admit_outside()
            except GatewayRefused as error:
                _refuse(error)

    async def _rounds(
        self,
        connection: McpConnection,
        context: Context,
        params: Any,
        call: Callable[[Any], Awaitable[BaseModel]],
    ) -> BaseModel:
        """Make a call; where it asks back, and the client expects requests, ask it and go on.

        Newer clients make the next round themselves.
        """
        result = await call(params)
        for _ in range(MAX_ROUNDS):
            if not isinstance(result, InputRequiredResult) or _is_modern(context):
                return result
            state = result.request_state
            try:
                answers = await self._ask(context, result)
            except BaseException:
                if connection.session is not None:
                    connection.session.drop(state)
                raise
            update = {"request_state": state, "input_responses": answers}
            result = await call(params.model_copy(update=update))
        raise MCPError(INTERNAL_ERROR, f"the server has asked more than {MAX_ROUNDS} times")

    async def _ask(self, context: Context, asked: InputRequiredResult) -> dict[str, Any]:
        stream: AnswerStream = _scope(context)[_STREAM]
        answers: dict[str, Any] = {}
        for key, request in (asked.input_requests or {}).items():
            message = request.model_dump(mode="json", by_alias=True, exclude_none=True)
            method, params = message["method"], message.get("params", {})
            answer = await self._questions.ask(stream, method, params)
            try:
                answers[key] = _ANSWERS[method].validate_python(answer)
            except (KeyError, ValidationError):
                raise MCPError(INVALID_PARAMS, "the answer is not as its schema says") from None
        return answers


class _Server(Server[Any]):
    """What clients of one server meet: its instructions, and the kinds of requests it takes."""

    def __init__(self, connection: McpConnection, **handlers: Any) -> None:
        # The server itself checks what a client repeats in headers.
        super().__init__("cutover", get_tool_input_schema=lambda _: None, **handlers)
        self._connection = connection

    @property
    def instructions(self) -> str | None:
        """The server's own instructions."""
        return self._connection.instructions

    @instructions.setter
    def instructions(self, _: str | None) -> None:
        """Ignore what the SDK sets at first."""

    def get_capabilities(self, *args: Any, **named: Any) -> ServerCapabilities:
        """Return what both can do."""
        ours, theirs = super().get_capabilities(*args, **named), self._connection.capabilities
        lacking = {name: None for name in _OFFERED if getattr(theirs, name) is None}
        return ours.model_copy(update=lacking)


def add_tool_servers(app: FastAPI, servers: ToolServers) -> None:
    """Mount the tool gateway on an application, also below the address of an exchange."""
    for below in ("", "/exchanges/{exchange}"):
        app.router.routes.append(Route(f"{below}/mcp/{{server}}", servers, methods=["POST"]))
    deep_dict_update(app.state.document, tool_servers_document())


class _Meta(msgspec.Struct):
    traceparent: str = ""


class _Params(msgspec.Struct):
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


class _Traced(msgspec.Struct):
    params: _Params = msgspec.field(default_factory=_Params)


_traced = msgspec.json.Decoder(_Traced)


def trace_in(body: bytes) -> bytes:
    """Return the trace context in a message's `_meta`, as `traceparent` has it; b"" for none."""
    if b"traceparent" not in body:
        return b""
    try:
        traced = _traced.decode(body).params.meta.traceparent.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return b""
    return traced if trace_of(((TRACE_HEADER, traced),)) else b""


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _with_answers(arguments: dict[str, Any], params: Any) -> dict[str, Any]:
    """Return what tells a call from others: in a further round the answers, too."""
    answers = getattr(params, "input_responses", None)
    if answers is None:
        return arguments
    given = {
        key: one.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, one in answers.items()
    }
    return {"arguments": arguments, "answers": given}


def _result(value: Any, kind: type[BaseModel]) -> BaseModel:
    asks = isinstance(value, dict) and value.get("resultType") == _INPUT_REQUIRED
    return (InputRequiredResult if asks else kind).model_validate(value)


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
