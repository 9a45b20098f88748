"""`python -m benchmarks.plain`: serve the baseline until a signal; one line says where."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from jinja2 import Environment, FileSystemLoader, select_autoescape
from openai import AsyncOpenAI

from benchmarks.plain.reply import ChatBody, ChatReply
from benchmarks.plain.store import ChatTurn, Turns

ANNOUNCED = "plain listening on "
BACKLOG = 2_048


@dataclass(frozen=True, slots=True)
class Setup:
    """Where the baseline's provider and store are; `model` is the provider's name of the model."""

    provider: str
    model: str
    store: Path


def create_app(setup: Setup) -> FastAPI:
    """Build the application."""
    turns = Turns(setup.store)
    # trust_env as everywhere by default; one client for the process, as the SDK advises.
    client = AsyncOpenAI(api_key="none", base_url=setup.provider)
    prompts = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape((), default=False),
        keep_trailing_newline=True,
    )
    prompt = prompts.get_template("system.j2")
    answering: set[str] = set()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.close()
        turns.close()

    app = FastAPI(lifespan=lifespan)

    @app.post("/chat/sse")
    async def chat(body: ChatBody) -> StreamingResponse:
        if body.message_id in answering:
            raise HTTPException(409, "this message is being answered already")
        answering.add(body.message_id)
        try:
            turn = await _turn(body, turns)
        except BaseException:
            answering.discard(body.message_id)
            raise
        reply = ChatReply(body, turn, client, setup.model, turns, prompt)
        return StreamingResponse(
            _locked(reply, answering),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    return app


async def _turn(body: ChatBody, turns: Turns) -> ChatTurn:
    if body.content is None:
        found = await turns.find(body.message_id)
        if found is None:
            raise HTTPException(404, "no message with this message_id is stored")
        return found
    turn = ChatTurn(
        body.message_id, "user", body.content, body.chat_id, body.user_id, body.user_name
    )
    if not await turns.put(turn):
        raise HTTPException(409, "this message_id belongs to a different message")
    return turn


async def _locked(reply: ChatReply, answering: set[str]) -> AsyncIterator[str]:
    try:
        async for frame in reply.frames():
            yield frame
    finally:
        answering.discard(reply.body.message_id)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain")
    parser.add_argument("--provider", required=True, help="base URL of the provider")
    parser.add_argument("--model", required=True, help="the provider's name of the model")
    parser.add_argument("--store", required=True, type=Path, help="SQLite file")
    given = parser.parse_args()
    app = create_app(Setup(given.provider, given.model, given.store))
    listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    sys.stdout.write(f"{ANNOUNCED}http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", access_log=False, log_config=None
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
