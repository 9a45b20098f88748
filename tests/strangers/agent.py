"""A LangGraph server, as near as a client can tell: runs of a thread, in messages and values."""

import json
import os
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.strangers.completions import ask_model

app = FastAPI()


@app.post("/threads/{thread}/runs/stream")
async def run(thread: str, request: Request) -> StreamingResponse:
    """Run the agent."""
    body = await request.json()
    trace = request.headers.get("traceparent", "") if os.environ.get("TRACED") else ""
    messages = body["input"]["messages"]

    async def events() -> Any:
        yield _event("metadata", {"run_id": str(uuid.uuid4()), "attempt": 1})
        name, text = f"run-{uuid.uuid4()}", ""
        async for piece in ask_model(messages, trace):
            text += piece
            chunk = {"type": "AIMessageChunk", "id": name, "content": piece, "tool_calls": []}
            about = {"langgraph_node": "model", "thread_id": thread}
            yield _event("messages", [chunk, about])
        answer = {"type": "ai", "id": name, "content": text}
        yield _event("values", {"messages": [*messages, answer]})

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
