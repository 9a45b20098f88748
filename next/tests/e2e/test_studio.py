"""LangGraph's own server opens the five graphs: draws, runs, steps and resumes them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN = 90.0
GRAPHS = {
    "chat": "tool_execution",
    "companion": "human",
    "session": "extract_memory",
    "pipeline": "rag_retriever",
    "ops": "approve",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `langgraph dev` on a port of its own, with a model that is simulated beside it."""
    folder = tmp_path_factory.mktemp("studio")
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    config = folder / "cutover.toml"
    config.write_text(f"[stores]\ndatabase = 'sqlite+aiosqlite:///{folder}/world.db'\n")
    environment = {
        **os.environ,
        "CUTOVER_CONFIG": str(config),
        "OPENAI_BASE_URL": f"http://127.0.0.1:{ports[0]}/v1",
        "OPENAI_API_KEY": "none",
        "LANGSMITH_TRACING": "false",
    }
    model = [sys.executable, "-m", "loadtests.simulator", "--port", str(ports[0])]
    program = str(Path(sys.executable).parent / "langgraph")
    server = [program, "dev", "--no-browser", "--no-reload"]
    log = (folder / "dev.log").open("wb")
    processes = [
        subprocess.Popen(model, cwd=ROOT),
        subprocess.Popen(
            [*server, "--port", str(ports[1])],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        ),
    ]
    try:
        url = f"http://127.0.0.1:{ports[1]}"
        _wait_for(url)
        yield url
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def _wait_for(url: str) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            assert httpx.get(f"{url}/ok").status_code == 200
        except httpx.TransportError:
            assert time.monotonic() < until, "the server does not start"
            time.sleep(0.2)  # a process of its own has no clock to move
        else:
            return


@pytest.fixture
async def client(address: str) -> AsyncIterator[LangGraphClient]:
    """A client as Studio has one."""
    async with get_client(url=address) as opened:
        yield opened


async def test_five_graphs_are_drawn_with_their_schemas(client: LangGraphClient) -> None:
    """Nodes, inputs and states are there to look at."""
    for name, node in GRAPHS.items():
        [assistant] = await client.assistants.search(graph_id=name)
        drawn: Any = await client.assistants.get_graph(assistant["assistant_id"])
        assert node in {one["id"] for one in drawn["nodes"]}
        schemas = await client.assistants.get_schemas(assistant["assistant_id"])
        assert (schemas["input_schema"] or {}).get("properties")
        assert (schemas["state_schema"] or {}).get("properties")


async def test_a_run_is_streamed_and_time_is_travelled(client: LangGraphClient) -> None:
    """The history holds each step; from a changed state on, the graph runs again."""
    thread: Any = await client.threads.create()
    asked: Any = {"message_id": "m1", "content": "What is 12 * 7?"}
    events = [
        part.event
        async for part in client.runs.stream(
            thread["thread_id"], "chat", input=asked, stream_mode=["messages-tuple", "custom"]
        )
    ]
    assert {"messages", "custom"} <= set(events)
    history: Any = await client.threads.get_history(thread["thread_id"], limit=20)
    assert history[0]["values"]["accumulated_content"] == "12 * 7 is 84."
    before = next(one for one in history if one["next"] == ["output_processing"])
    fork: Any = await client.threads.update_state(
        thread["thread_id"],
        {"accumulated_content": " Changed."},
        checkpoint=before["checkpoint"],
        as_node="model_call",
    )
    again: Any = await client.runs.wait(
        thread["thread_id"], "chat", checkpoint=fork["checkpoint"], input=None
    )
    assert again["accumulated_content"] == "12 * 7 is 84. Changed."


async def test_sessions_and_pipelines_run(client: LangGraphClient) -> None:
    """With a store and without."""
    for name, body, field in (
        ("session", {"message": "Hello", "user_id": "u"}, "messages"),
        ("pipeline", {"message": "Hi", "user_id": "u", "session_id": "s"}, "generated_response"),
    ):
        thread: Any = await client.threads.create()
        state: Any = await client.runs.wait(thread["thread_id"], name, input=body)
        assert state[field], name


async def test_an_interrupt_is_resumed(client: LangGraphClient) -> None:
    """A risky instruction waits for its approval, and is rejected."""
    thread: Any = await client.threads.create()
    asked: Any = {"user_input": "restart web", "session_id": "s", "max_iterations": 3}
    await client.runs.wait(thread["thread_id"], "ops", input=asked)
    state: Any = await client.threads.get_state(thread["thread_id"])
    assert state["next"] == ["approve"]
    decision: Any = {"answer": {"action": "reject", "data": {}, "by": "ada"}}
    await client.runs.wait(thread["thread_id"], "ops", command={"resume": decision})
    state = await client.threads.get_state(thread["thread_id"])
    assert state["next"] == []
    assert state["values"]["approval_granted"] is False
