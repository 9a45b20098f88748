"""An MCP server with everything but plain tools: questions, resources, prompts, completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve, Sample
from mcp_types import (
    METHOD_NOT_FOUND,
    Completion,
    CompletionArgument,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from router.http.endpoints import send_whole
from tests.support.asgi import served

INSTRUCTIONS = "Ask before you order more than two."


class HowMany(BaseModel):
    """What a user is asked for."""

    count: int


async def how_many(item: str) -> Elicit[HowMany]:
    """Ask the user."""
    return Elicit(f"How many {item}?", HowMany)


async def slogan(item: str) -> Sample:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(text=f"A slogan for {item}"))
    return Sample([message], max_tokens=10)


@dataclass
class Store:
    """Counts what its tools, resources and prompts really did."""

    done: list[str] = field(default_factory=list)

    def server(self) -> MCPServer:
        """Make the server."""
        server = MCPServer("store", instructions=INSTRUCTIONS, log_level="CRITICAL")

        @server.tool(structured_output=False)
        async def buy(item: str, wanted: Annotated[HowMany, Resolve(how_many)]) -> str:
            """Buy as many as the user says."""
            self.done.append(f"buy {wanted.count} {item}")
            return f"{wanted.count} of {item} bought"

        @server.tool(structured_output=False)
        async def praise(item: str, told: Annotated[CreateMessageResult, Resolve(slogan)]) -> str:
            """Praise in the words of the client's model."""
            self.done.append(f"praise {item}")
            assert isinstance(told.content, TextContent)
            return told.content.text

        @server.resource("store://opening")
        async def opening() -> str:
            """Return the hours."""
            self.done.append("read opening")
            return "nine to five"

        @server.resource("store://shelf/{name}")
        async def shelf(name: str) -> str:
            """Return what is on a shelf."""
            self.done.append(f"read {name}")
            return f"tea on {name}"

        @server.prompt()
        async def greet(name: str) -> str:
            """Greet."""
            self.done.append(f"greet {name}")
            return f"Greet {name}."

        async def complete(*of: Any) -> Completion:
            """Complete what is typed."""
            argument: CompletionArgument = of[1]
            self.done.append(f"complete {argument.value}")
            return Completion(values=[f"{argument.value}na"])

        completing: Any = server.completion
        completing()(complete)
        return server


@asynccontextmanager
async def serving_store(store: Store, *, modern: bool) -> AsyncIterator[str]:
    """Serve it over HTTP; gives the address. Not `modern`: it knows the handshake alone."""
    server = store.server()
    app: ASGIApp = server.streamable_http_app()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.session_manager.run())
        yield await stack.enter_async_context(served(app if modern else _without_discovery(app)))


def _without_discovery(app: ASGIApp) -> ASGIApp:
    """Answer as a server of an earlier version: it does not know the newer one's requests."""

    async def older(scope: Scope, receive: Receive, send: Send) -> None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if version not in MODERN_PROTOCOL_VERSIONS:
            await app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
        answer = {"jsonrpc": "2.0", "id": msgspec.json.decode(body).get("id"), "error": error}
        kind = (b"content-type", b"application/json")
        await send_whole(send, 200, (kind,), msgspec.json.encode(answer))

    return older
