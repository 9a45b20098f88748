"""Sessions with MCP servers, by the official SDK: transport, handshake, tools and answers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, Protocol, TextIO, TypeAlias, assert_never, cast

import anyio
import httpx2
import msgspec
from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server import MCPServer
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequest,
    CompleteResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptRequest,
    GetPromptResult,
    ImageContent,
    Implementation,
    InputRequiredResult,
    InputResponseRequestParams,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceRequest,
    ReadResourceResult,
    ResourceLink,
    ServerCapabilities,
    TextContent,
    TextResourceContents,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter

from contract.errors import CutoverError
from effects.tools.mcp.questions import Perform, Questions
from effects.tools.mcp.server import ListedTool, McpServer
from effects.tools.tool import BadArguments

MAX_ANSWER_BYTES: Final = 4_194_304
"""Bytes of an HTTP answer that are read: the SDK reads one that is JSON as a whole."""
MAX_LINE_BYTES: Final = 1_000
"""Bytes of a line on standard error that are logged."""
MAX_PAGES: Final = 20
READ_SECONDS: Final = 300.0
"""How long an open stream may be silent before it is opened again."""
RELISTEN_SECONDS: Final = 1.0
"""From the end of a stream of changes until the next is opened."""
_EVENTS: Final = "text/event-stream"
_ERRORS: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    ((FileNotFoundError,), "no such command"),
    ((PermissionError,), "the command may not be run"),
    ((TimeoutError, httpx2.TimeoutException), "no answer in time"),
    ((ConnectionRefusedError, httpx2.ConnectError), "connection refused"),
)
_ERROR_CODES: Final = {
    CONNECTION_CLOSED: "the connection ended",
    REQUEST_TIMEOUT: "no answer in time",
}

ReadRequest: TypeAlias = (
    ListResourcesRequest
    | ListResourceTemplatesRequest
    | ReadResourceRequest
    | ListPromptsRequest
    | GetPromptRequest
    | CompleteRequest
)
_READ_RESULTS: Final[Mapping[type[ReadRequest], TypeAdapter[Any]]] = {
    ListResourcesRequest: TypeAdapter(ListResourcesResult),
    ListResourceTemplatesRequest: TypeAdapter(ListResourceTemplatesResult),
    ReadResourceRequest: TypeAdapter(ReadResourceResult | InputRequiredResult),
    ListPromptsRequest: TypeAdapter(ListPromptsResult),
    GetPromptRequest: TypeAdapter(GetPromptResult | InputRequiredResult),
    CompleteRequest: TypeAdapter(CompleteResult),
}

Notify = Callable[[], None]

log = logging.getLogger(__name__)


class ToolFailed(CutoverError):
    """A tool answered that it failed; its own words may quote anything and stay with it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the tool {name!r} says that it failed")


class ServerAway(CutoverError):
    """A tool was called whose server is not there."""

    def __init__(self, server: str) -> None:
        super().__init__(f"the MCP server {server!r} is away")


class McpSession(Protocol):
    """One connection, from its handshake to its end.

    Both methods raise whatever the transport raises.
    """

    async def list(self) -> tuple[ListedTool, ...]:
        """List the tools there are."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool by the server's own name for it.

        Cancelling the call tells the server. Raises `ToolFailed`, and `BadArguments` where the
        server refuses the arguments.
        """
        ...

    async def list_page(self, cursor: str | None) -> ListToolsResult:
        """List the tools of one page, as the server describes them."""
        ...

    async def pass_call(
        self, params: CallToolRequestParams, report: ProgressFnT
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool, and return the server's answer as it is; `report` is told of progress.

        Cancelling the call tells the server. A call that is asked back for has another round, with
        `request_state` and `input_responses`.
        """
        ...

    async def pass_read(self, request: ReadRequest, report: ProgressFnT) -> BaseModel:
        """Make a request that changes nothing, and return the answer as it is."""
        ...

    def drop(self, state: str | None) -> None:
        """Cancel a call that was asked back for, and gets no answer."""
        ...

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server can do."""
        ...

    @property
    def instructions(self) -> str | None:
        """What the server tells models of itself."""
        ...


def answer_text(result: CallToolResult) -> str:
    """Put the blocks of an answer below each other; without any, its structure as JSON.

    A tool with a structured answer repeats it as text (MCP asks for it), so text is enough.
    """
    blocks = "\n".join(_block(one) for one in result.content)
    if blocks or result.structured_content is None:
        return blocks
    return msgspec.json.encode(result.structured_content).decode()


def _block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type} {block.mime_type}, {_decoded_size(block.data)} bytes, not shown]"
        case ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case EmbeddedResource(resource=inside):
            if isinstance(inside, TextResourceContents):
                size = len(inside.text.encode())
            else:
                size = _decoded_size(inside.blob)
            kind = inside.mime_type or "of no type"
            return f"[resource {inside.uri}, {kind}, {size} bytes, not shown]"
        case _:
            assert_never(block)


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


class AnswerTooLong(httpx2.StreamError):
    """An answer is longer than is read of one; with this error the call alone fails."""

    def __init__(self) -> None:
        super().__init__(f"longer than {MAX_ANSWER_BYTES} bytes")


class BoundedStream(httpx2.AsyncByteStream):
    """A body of which `MAX_ANSWER_BYTES` are read."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body's pieces; raises `AnswerTooLong`."""
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLong
            yield piece

    async def aclose(self) -> None:
        """Close the connection's side."""
        await self._stream.aclose()


async def bound_answer(response: httpx2.Response) -> None:
    """Abort an answer that is too long; a stream of events may be of any length."""
    stream = response.stream
    events = response.headers.get("content-type", "").startswith(_EVENTS)
    if isinstance(stream, httpx2.AsyncByteStream) and not events:
        response.stream = BoundedStream(stream)


class LineLogger(asyncio.Protocol):
    """Logs each line as it comes; of a long one its beginning."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._logged = False

    def data_received(self, data: bytes) -> None:
        """Log complete lines, and the beginning of a long one."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log(line)
            self._logged = False
        if len(rest) > MAX_LINE_BYTES:
            self._log(rest)
            self._logged, rest = True, b""
        self._rest = rest

    def eof_received(self) -> None:
        """Log what came last, which may lack the end of its line."""
        self._log(self._rest)
        self._rest = b""

    def _log(self, line: bytes) -> None:
        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip()
        if text and not self._logged:
            log.info("MCP server %r: %s", self._name, text)


@asynccontextmanager
async def stderr_of(name: str) -> AsyncIterator[TextIO]:
    """Open a file whose lines go to the log, for the standard error of a started server."""
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: LineLogger(name), os.fdopen(reading, "rb", 0)
    )
    try:
        with os.fdopen(writing, "w") as file:
            yield file
    finally:
        # A child of the server may still hold the other end: its lines are dropped.
        await asyncio.sleep(0)
        transport.close()


def describe_error(error: BaseException) -> str:
    """Describe why a server cannot be used, without secrets: never in an exception's own words.

    Of several errors at once it describes the first.
    """
    if isinstance(error, BaseExceptionGroup):
        return describe_error(error.exceptions[0])
    if isinstance(error, CutoverError):
        return str(error)
    if isinstance(error, MCPError):
        return _ERROR_CODES.get(error.code, f"answered with error {error.code}")
    known = (text for kinds, text in _ERRORS if isinstance(error, kinds))
    return next(known, type(error).__name__)


class WatchedStream(ObjectReceiveStream[SessionMessage | Exception]):
    """A server's messages; `ended` is called at their end: only the next call would notice it."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            message: SessionMessage | Exception = await self._stream.receive()
        except EndOfStream:
            self._ended()
            raise
        return message

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


@asynccontextmanager
async def watch_end(
    transport: Transport, ended: Callable[[], None]
) -> AsyncIterator[tuple[WatchedStream, Any]]:
    """Open a transport; `ended` is called when the server ends it."""
    async with transport as (read, write):
        yield WatchedStream(read, ended), write


@asynccontextmanager
async def open_session(server: McpServer, check: Notify) -> AsyncIterator[SdkSession]:
    """Connect to a server; enter and leave in one task.

    `check` is called whenever its tools may have changed, or it may have gone.
    """
    async with AsyncExitStack() as stack:
        transport = watch_end(await _transport(server, stack), check)
        questions = Questions(attributed=bool(server.url)) if server.asks else None
        yield await stack.enter_async_context(
            connect_session(transport, check, questions=questions)
        )


@asynccontextmanager
async def connect_session(
    target: Transport | MCPServer,
    check: Notify,
    mode: Literal["auto", "legacy"] = "auto",
    questions: Questions | None = None,
) -> AsyncIterator[SdkSession]:
    """Shake hands over a transport, or with a server in this process.

    Without `questions` the server is told that nobody can be asked.
    """

    async def heard(message: object) -> None:
        if isinstance(message, ToolListChangedNotification | Exception):
            check()

    client = Client(
        target,
        mode=mode,
        message_handler=heard,
        client_info=Implementation(name="cutover", version="0"),
        cache=None,
        elicitation_callback=questions.elicit if questions else None,
        sampling_callback=questions.sample if questions else None,
    )
    async with client, anyio.create_task_group() as group:
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            group.start_soon(_listen, client, check)
        calls = questions or Questions(attributed=True)
        try:
            yield SdkSession(client, check, calls)
        finally:
            calls.close()
            group.cancel_scope.cancel()


class SdkSession:
    """A session of the SDK's client."""

    def __init__(self, client: Client, check: Notify, questions: Questions) -> None:
        self._client = client
        self._check = check
        self._questions = questions
        self._modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def list(self) -> tuple[ListedTool, ...]:
        """List the tools, page by page."""
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.list_page(cursor)
            for tool in page.tools:
                description = tool.description or tool.title or ""
                hints = tool.annotations
                found.append(
                    ListedTool(
                        tool.name,
                        description,
                        tool.input_schema,
                        hinted=bool(hints and hints.read_only_hint),
                        repeatable=bool(hints and hints.idempotent_hint),
                    )
                )
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(found)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool; an error of the protocol may mean that the server has gone."""
        self._questions.others += 1
        try:
            result = await self._client.call_tool(name, arguments)
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                raise BadArguments(argument="*", reason="not as the server has it") from error
            self._check()
            raise
        finally:
            self._questions.others -= 1
        if result.is_error:
            raise ToolFailed(name)
        return answer_text(result)

    async def list_page(self, cursor: str | None) -> ListToolsResult:
        """List the tools of one page, as the server describes them."""
        return await self._client.list_tools(cursor=cursor)

    async def pass_call(
        self, params: CallToolRequestParams, report: ProgressFnT
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; an error of the protocol may mean that the server has gone."""
        try:
            return cast(
                "CallToolResult | InputRequiredResult",
                await self._round(partial(self._call_tool, params), params, report),
            )
        except MCPError as error:
            if error.code != INVALID_PARAMS:
                self._check()
            raise

    async def _call_tool(self, params: CallToolRequestParams, report: ProgressFnT) -> BaseModel:
        call = partial(
            self._client.session.call_tool,
            params.name,
            params.arguments,
            progress_callback=report,
            input_responses=params.input_responses if self._modern else None,
            request_state=params.request_state if self._modern else None,
            meta=params.meta,
            allow_input_required=True,
        )
        try:
            return await call()
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await self._client.list_tools()  # its schema has changed since it was listed
            return await call()

    async def pass_read(self, request: ReadRequest, report: ProgressFnT) -> BaseModel:
        """Make a request that changes nothing, and return the answer as it is."""

        async def perform(report: ProgressFnT) -> BaseModel:
            return await self._client.session.send_request(
                request, _READ_RESULTS[type(request)], progress_callback=report
            )

        return await self._round(perform, request.params, report)

    async def _round(self, perform: Perform, params: object, report: ProgressFnT) -> BaseModel:
        if self._modern:  # its questions are results
            return await perform(report)
        asked = params if isinstance(params, InputResponseRequestParams) else None
        state = asked.request_state if asked else None
        answers = asked.input_responses if asked else None
        return await self._questions.round(perform, report, state, answers)

    def drop(self, state: str | None) -> None:
        """Cancel a call that was asked back for, and gets no answer."""
        self._questions.drop(state)

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server can do."""
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        """What the server tells models of itself."""
        return self._client.instructions


async def _listen(client: Client, check: Notify) -> None:
    """Listen for changes where the protocol has a stream of them."""
    while True:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    check()
        except SubscriptionLost:
            pass
        except (MCPError, TimeoutError):
            return
        check()
        await anyio.sleep(RELISTEN_SECONDS)


async def _transport(server: McpServer, stack: AsyncExitStack) -> Transport:
    if server.url:
        return streamable_http_client(
            server.url, http_client=await stack.enter_async_context(_http(server))
        )
    command, *arguments = server.command
    started = StdioServerParameters(
        command=command,
        args=arguments,
        env=dict(server.variables),
        encoding_error_handler="replace",
    )
    file = await stack.enter_async_context(stderr_of(server.name))
    return stdio_client(started, errlog=file)


def _http(server: McpServer) -> httpx2.AsyncClient:
    token = server.token.reveal()
    # Not compressed: the bound is on what is read.
    headers = {"accept-encoding": "identity"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    limits = httpx2.Timeout(server.connect, read=max(READ_SECONDS, server.timeout))
    return httpx2.AsyncClient(
        headers=headers,
        timeout=limits,
        trust_env=False,
        event_hooks={"response": [bound_answer]},
    )
