"""A bridge on standard input and output between an MCP client and the server it would start.

Messages pass as they are. A call of a tool that names an exchange is performed once per exchange:
the effect API says whether the server is to be called, or what came of it in another run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

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
_NAMED: Final = "x-cutover-exchange"
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
        self._exchange = {
            header: environ[variable]
            for variable, header in _VARIABLES.items()
            if environ.get(variable)
        }
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
        while line := await _line(reader):
            message = _message(line)
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
        while line := await _line(reader):
            message = _message(line)
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
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        found = meta if isinstance(meta, dict) else {}
        own = {
            header: found[key] for key, header in _META.items() if isinstance(found.get(key), str)
        }
        return own or self._exchange

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
        if _NAMED in headers:
            # Never passed on: it may be a shadow's, later than its exchange.
            return _refusal("unknown_exchange", "no such exchange is open")
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
        with suppress(ConnectionError):  # its end is noticed where it is read
            self._server.write(line.rstrip(b"\r\n") + b"\n")
            await self._server.drain()

    async def _to_client(self, line: bytes) -> None:
        with suppress(ConnectionError):
            self._client.write(line.rstrip(b"\r\n") + b"\n")
            await self._client.drain()


async def run_bridge(
    command: Sequence[str], name: str, gateway: Gateway | None, environ: Mapping[str, str]
) -> int:
    """Bridge this process's standard input and output; returns the server's exit status."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(MOST_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return await Bridge(name, gateway, environ).run(command, reader, writer)


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


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Read a message; nothing at the end, or where one is too long to be read."""
    try:
        return await reader.readline()
    except ValueError:
        log.error("a message is longer than %d bytes", MOST_BYTES)
        return b""


def _message(line: bytes) -> dict[str, Any] | None:
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
