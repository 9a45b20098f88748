"""A bridge on standard input and output between an MCP client and the server it would start.

Messages pass as they are, to that server or to one that the router has. A call of a tool that names
an exchange is performed once in it: the effect API, or the router's tool gateway, says whether the
server is to be called, or what came of it in another run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import aiohttp
import msgspec

from contract.errors import CutoverError
from cutover_client import GatewayError
from cutover_client.calls import Call, Perform, Played, Report
from cutover_client.exchange import Exchange
from cutover_client.gateway import Gateway

log = logging.getLogger(__name__)

REFUSED: Final = -32050
"""JSON-RPC code of calls that are not performed; the data has the `code`."""
MOST_BYTES: Final = 64 * 1_048_576
"""Of one message."""
END_SECONDS: Final = 10.0
"""What calls under way, and then the server, get to end once the client has left."""
_META: Final = {
    "cutover/exchange": "x-cutover-exchange",
    "cutover/role": "x-cutover-role",
    "traceparent": "traceparent",
}
"""What a call's `_meta` may say of its exchange, and the headers that say it to the router."""
_VARIABLES: Final = {
    "CUTOVER_EXCHANGE": "x-cutover-exchange",
    "CUTOVER_ROLE": "x-cutover-role",
    "TRACEPARENT": "traceparent",
}
_PLAIN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
_REPEATABLE: Final = "arguments"
"""Key of a repeatable call: its arguments alone tell it from others."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class CommandNotFound(CutoverError):
    """The server cannot be started."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command!r} cannot be started: {why}")


class GatewayNotNamed(CutoverError):
    """An exchange is named, and nothing says where its router is."""

    def __init__(self) -> None:
        super().__init__(
            "an exchange is named, and no router: set CUTOVER_URL to the address of its gateway, "
            "and the variable of --key-env to the gateway's key"
        )


@dataclass(frozen=True, slots=True)
class _Hints:
    """What a server says of a tool."""

    read_only: bool = False
    idempotent: bool = False


@dataclass(eq=False)
class _Calling:
    """A call that the server carries out for an exchange."""

    progress_token: object
    answered: asyncio.Future[Mapping[str, Any]]
    items: list[Any] = field(default_factory=list)


class Bridge:
    """Passes messages between a client and a server; `name` stands in the names of effects.

    `environ` may name an exchange for calls that name none themselves.
    """

    _server: asyncio.StreamWriter
    _client: asyncio.StreamWriter

    def __init__(self, name: str, gateway: Gateway | None, environ: Mapping[str, str]) -> None:
        self._name = name
        self._gateway = gateway
        self._exchange = exchange_of(environ)
        self._calls: dict[object, _Calling] = {}
        self._lists: set[object] = set()
        self._hints: dict[str, _Hints] = {}
        self._dropped: set[object] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self, command: Sequence[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        """Start the server and pass messages until either side ends; returns its exit status."""
        process = await _start(command)
        output = cast("asyncio.StreamReader", process.stdout)
        self._server, self._client = cast("asyncio.StreamWriter", process.stdin), writer
        upward = asyncio.create_task(self._pass_up(reader), name="from the client")
        downward = asyncio.create_task(self._pass_down(output), name="from the server")
        try:
            await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
            if not downward.done() and self._tasks:
                await asyncio.wait(self._tasks, timeout=END_SECONDS)
            self._server.close()
            await _end(process)
            await downward
            for calling in self._calls.values():
                calling.answered.cancel()  # never reported: in doubt
            if self._tasks:
                await asyncio.wait(self._tasks)
            upward.cancel()
            await asyncio.wait({upward})
        finally:
            if process.returncode is None:
                process.kill()
            if self._gateway is not None:
                await self._gateway.aclose()
        return process.returncode or 0

    async def _pass_up(self, reader: asyncio.StreamReader) -> None:
        while line := await read_line(reader):
            message = read_message(line)
            if message is None:
                await self._to_server(line)
                continue
            method, name = message.get("method"), _hashable(message.get("id"))
            if method == "notifications/cancelled" and self._cancelled(message):
                continue
            if method == "tools/list" and name is not None:
                self._lists.add(name)
            headers = self._headers(message) if method == "tools/call" else {}
            if headers and name is not None:
                task = asyncio.create_task(self._perform(line, message, headers), name="tool call")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                await self._to_server(line)

    async def _pass_down(self, reader: asyncio.StreamReader) -> None:
        while line := await read_line(reader):
            message = read_message(line)
            if message is not None and "method" not in message:
                name = _hashable(message.get("id"))
                if (calling := self._calls.get(name)) is not None:
                    if not calling.answered.done():
                        calling.answered.set_result(message)
                    continue
                if name in self._lists:
                    self._lists.discard(name)
                    self._hints |= _hints(message)
            elif message is not None and message["method"] == "notifications/progress":
                self._note_progress(message)
            await self._to_client(line)

    def _headers(self, message: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what names the exchange of a call: its own `_meta`, else the environment."""
        return named_exchange(message) or self._exchange

    def _cancelled(self, message: Mapping[str, Any]) -> bool:
        """Whether a cancellation is of a call for an exchange: that goes on to its end."""
        params = message.get("params")
        name = _hashable(params.get("requestId")) if isinstance(params, dict) else None
        if name not in self._calls:
            return False
        self._dropped.add(name)
        return True

    def _note_progress(self, message: Mapping[str, Any]) -> None:
        params = message.get("params") or {}
        for calling in self._calls.values():
            if calling.progress_token == params.get("progressToken") is not None:
                calling.items.append({k: v for k, v in params.items() if k != "progressToken"})

    async def _perform(
        self, line: bytes, message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        """Answer a call for an exchange."""
        name = _hashable(message["id"])
        try:
            answer = await self._outcome(line, message, headers)
        except GatewayError as error:
            answer = _refusal(error.code, str(error))
        except GatewayNotNamed as error:
            answer = _refusal("gateway_not_named", str(error))
        if name in self._dropped:
            self._dropped.discard(name)
        else:
            await self._to_client(_encode({"jsonrpc": "2.0", "id": message["id"], **answer}))

    async def _outcome(
        self, line: bytes, message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        if self._gateway is None:
            raise GatewayNotNamed
        params = message["params"]
        exchange = self._gateway.named(headers)
        call = self._call_of(params)
        told = await exchange.begin(call)
        if isinstance(told, Played):
            await self._play_progress(params, told.items)
            return _played(told)
        if told is not None:
            return await self._carry_out(line, message, exchange, told)
        return await self._ask_server(line, message, _Calling(None, _future()))

    def _call_of(self, params: Mapping[str, Any]) -> Call:
        tool = str(params.get("name"))
        arguments: Any = params.get("arguments") or {}
        if (answers := params.get("inputResponses")) is not None:
            arguments = {"arguments": arguments, "answers": answers}
        hints = self._hints.get(tool, _Hints())
        key = _REPEATABLE if hints.idempotent and not hints.read_only else ""
        effect = f"mcp.{self._name}.{tool}"
        return Call(effect, arguments, read_only=hints.read_only, key=key)

    async def _carry_out(
        self, line: bytes, message: Mapping[str, Any], exchange: Exchange, told: Perform
    ) -> Mapping[str, Any]:
        calling = _Calling(_progress_token(message["params"]), _future())
        try:
            async with exchange.alive(told):
                answer = await self._ask_server(line, message, calling)
        except asyncio.CancelledError:
            if not calling.answered.cancelled():
                raise
            return _refusal("effect_in_doubt", "the server ended before it answered")
        if (error := answer.get("error")) is not None:
            failed = str(error.get("code")), str(error.get("message"))
            await exchange.report(told, Report(calling.items, error=failed))
        else:
            await exchange.report(told, Report(calling.items, result=answer.get("result")))
        return answer

    async def _ask_server(
        self, line: bytes, message: Mapping[str, Any], calling: _Calling
    ) -> Mapping[str, Any]:
        name = _hashable(message["id"])
        self._calls[name] = calling
        try:
            await self._to_server(line)
            answer = await calling.answered
        finally:
            del self._calls[name]
        return {key: answer[key] for key in ("result", "error") if key in answer}

    async def _play_progress(self, params: Mapping[str, Any], items: Sequence[Any]) -> None:
        token = _progress_token(params)
        for item in items if token is not None else ():
            played = {"progressToken": token, **item}
            method = "notifications/progress"
            await self._to_client(_encode({"jsonrpc": "2.0", "method": method, "params": played}))

    async def _to_server(self, line: bytes) -> None:
        await write_line(self._server, line)

    async def _to_client(self, line: bytes) -> None:
        await write_line(self._client, line)


class Relay:
    """Passes messages between a client and a tool server that the router has, by HTTP.

    The router's answers to older clients need their version and session repeated, to newer ones
    what their messages say of themselves.
    """

    def __init__(
        self, url: str, key: str, environ: Mapping[str, str], writer: asyncio.StreamWriter
    ) -> None:
        self._url = url
        self._key = key
        self._exchange = exchange_of(environ)
        self._writer = writer
        self._version: dict[str, str] = {}
        self._session: dict[str, str] = {}
        self._asked: dict[object, Mapping[str, str]] = {}
        self._requests: dict[object, asyncio.Task[None]] = {}

    async def run(self, reader: asyncio.StreamReader) -> int:
        """Pass messages until the client leaves; what is open then is left."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=END_SECONDS)
        tasks: set[asyncio.Task[None]] = set()
        async with aiohttp.ClientSession(timeout=timeout, read_bufsize=MOST_BYTES) as http:
            while line := await read_line(reader):
                message = read_message(line) or {}
                name = _hashable(message.get("id"))
                if message.get("method") == "notifications/cancelled":
                    self._cancel(message)
                    continue
                task = asyncio.create_task(self._pass(http, line, message), name="message")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                if message.get("method") == "initialize":
                    await asyncio.wait({task})  # what follows repeats what it is answered
                elif name is not None and "method" in message:
                    self._requests[name] = task
                    task.add_done_callback(partial(self._over, name))
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        return 0

    def _over(self, name: object, _: object) -> None:
        self._requests.pop(name, None)

    def _cancel(self, message: Mapping[str, Any]) -> None:
        params = message.get("params")
        name = _hashable(params.get("requestId")) if isinstance(params, dict) else None
        if (task := self._requests.get(name)) is not None:
            task.cancel()  # to leave it is to cancel it

    async def _pass(
        self, http: aiohttp.ClientSession, line: bytes, message: Mapping[str, Any]
    ) -> None:
        name = _hashable(message.get("id"))
        try:
            headers = self._headers(message)
            async with http.post(self._url, data=line, headers=headers) as response:
                await self._take(response, message, headers)
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("a message was not passed: %s", type(error).__name__)
            if name is not None and "method" in message:
                why = f"{type(error).__name__}: the call may have happened"
                await self._answer(name, _refusal("gateway_unreachable", why))

    def _headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        answered = self._asked.pop(_hashable(message.get("id")), None)
        headers = {
            "authorization": f"Bearer {self._key}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **(answered or named_exchange(message) or self._exchange),
            **self._session,
            **self._version,
        }
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(_VERSION_META) if isinstance(meta, dict) else None
        if isinstance(version, str):
            headers |= {"mcp-protocol-version": version, "mcp-method": str(message.get("method"))}
            target = params.get("name", params.get("uri")) if isinstance(params, dict) else None
            if isinstance(target, str):
                headers["mcp-name"] = _header_value(target)
        return headers

    async def _take(
        self,
        response: aiohttp.ClientResponse,
        message: Mapping[str, Any],
        headers: Mapping[str, str],
    ) -> None:
        if session := response.headers.get("mcp-session-id"):
            self._session = {"mcp-session-id": session}
        if response.content_type == "text/event-stream":
            async for line in response.content:
                if line.startswith(b"data:") and (data := line[5:].strip()):
                    await self._take_message(data, message, headers)
        elif body := await response.read():
            name = _hashable(message.get("id"))
            found = read_message(body) or {}
            if "jsonrpc" in found:
                await self._take_message(body, message, headers)
            elif name is not None and "method" in message:
                error = found.get("error") or {}
                code = str(error.get("code", f"status_{response.status}"))
                await self._answer(name, _refusal(code, str(error.get("message", ""))))

    async def _take_message(
        self, data: bytes, message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        found = read_message(data) or {}
        if "method" in found and (asked := _hashable(found.get("id"))) is not None:
            known = {name: headers[name] for name in _META.values() if name in headers}
            self._asked[asked] = known
        result = found.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self._version = {"mcp-protocol-version": str(result.get("protocolVersion"))}
        await write_line(self._writer, data)

    async def _answer(self, name: object, answer: Mapping[str, Any]) -> None:
        await write_line(self._writer, _encode({"jsonrpc": "2.0", "id": name, **answer}))


async def run_bridge(
    command: Sequence[str], name: str, gateway: Gateway | None, environ: Mapping[str, str]
) -> int:
    """Bridge this process's standard input and output; returns the server's exit status."""
    reader, writer = await _standard_streams()
    return await Bridge(name, gateway, environ).run(command, reader, writer)


async def run_relay(url: str, key: str, environ: Mapping[str, str]) -> int:
    """Pass this process's standard input and output on to a tool server of the router."""
    reader, writer = await _standard_streams()
    return await Relay(url, key, environ, writer).run(reader)


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(MOST_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


def _header_value(text: str) -> str:
    """Return a name as MCP writes it in a header: in base64 unless it is plain."""
    if _PLAIN.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{b64encode(text.encode()).decode()}?="


def exchange_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that name the exchange of variables."""
    return {
        header: environ[variable]
        for variable, header in _VARIABLES.items()
        if environ.get(variable)
    }


def named_exchange(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that name the exchange of a message's `_meta`."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    found = meta if isinstance(meta, dict) else {}
    return {header: found[key] for key, header in _META.items() if isinstance(found.get(key), str)}


async def write_line(writer: asyncio.StreamWriter, line: bytes) -> None:
    """Write a message; that the other side has gone is noticed where it is read."""
    with suppress(ConnectionError):
        writer.write(line.rstrip(b"\r\n") + b"\n")
        await writer.drain()


async def _start(command: Sequence[str]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, limit=MOST_BYTES, env=dict(os.environ)
        )
    except OSError as error:
        raise CommandNotFound(command[0], (error.strerror or "unknown").lower()) from error


async def _end(process: Process) -> None:
    """Let a server end by itself, as its input has; then end it."""
    for stop in (process.terminate, process.kill):
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
                return
        except TimeoutError:
            with suppress(ProcessLookupError):
                stop()
    await process.wait()


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """Read a message; nothing at the end, or where one is too long to be read."""
    try:
        return await reader.readline()
    except ValueError:
        log.error("a message is longer than %d bytes", MOST_BYTES)
        return b""


def read_message(line: bytes) -> dict[str, Any] | None:
    """Read a message; None for what is none, which passes as it is."""
    try:
        message = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _hashable(name: object) -> object:
    return name if isinstance(name, str | int | float) else None


def _hints(message: Mapping[str, Any]) -> dict[str, _Hints]:
    result = message.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    found: dict[str, _Hints] = {}
    for tool in tools if isinstance(tools, list) else ():
        told = tool.get("annotations") or {}
        found[str(tool.get("name"))] = _Hints(
            told.get("readOnlyHint") is True, told.get("idempotentHint") is True
        )
    return found


def _progress_token(params: Mapping[str, Any]) -> object:
    meta = params.get("_meta")
    return meta.get("progressToken") if isinstance(meta, dict) else None


def _played(told: Played) -> Mapping[str, Any]:
    if told.error is None:
        return {"result": told.result}
    kind, message = told.error
    code = int(kind) if kind.lstrip("-").isdecimal() else REFUSED
    return {"error": {"code": code, "message": message}}


def _refusal(code: str, why: str) -> Mapping[str, Any]:
    return {"error": {"code": REFUSED, "message": why, "data": {"code": code}}}


def _future() -> asyncio.Future[Mapping[str, Any]]:
    return asyncio.get_running_loop().create_future()
