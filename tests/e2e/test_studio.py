"""LangGraph's own server opens the five graphs: draws, runs, steps and resumes them."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from effects.world import current
from graph_impl import GRAPHS
from harness.config import ConfigRefused
from harness.server import studio
from tests.support.processes import ROOT, Program

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `langgraph dev` in a folder of its own, with a model that is simulated beside it."""
    folder = tmp_path_factory.mktemp("studio")
    config = folder / "cutover.toml"
    config.write_text(
        f"[stores]\ndatabase = 'sqlite+aiosqlite:///{folder}/world.db'\n[models.'gpt-4.1']\n"
    )
    simulated = [sys.executable, "-m", "loadtests.simulator", "--chunk-ms", "0", "--port", "PORT"]
    program = [str(Path(sys.executable).parent / "langgraph"), "dev", "--port", "PORT"]
    program += ["--config", str(ROOT / "langgraph.json"), "--n-jobs-per-worker", "5"]
    with Program(folder, command=simulated) as model:
        environment = {
            "CUTOVER_CONFIG": str(config),
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        }
        command = [*program, "--no-browser", "--no-reload"]
        with Program(folder, command=command, environment=environment) as server:
            yield server.url


@pytest.fixture
async def client(address: str) -> AsyncIterator[LangGraphClient]:
    """A client as Studio has one."""
    async with get_client(url=address) as opened:
        yield opened


class Talk(NamedTuple):
    """Two turns of one thread; of the second: what is streamed, and what the state then holds."""

    first: Any
    second: Any
    streamed: str
    state: dict[str, Any]
    messages: tuple[str, ...] = ()
    context: Any = None
    """What the first turn alone is configured with."""


SUM, SUMMED = "What is 12 * 7?", "12 * 7 is 84."
ASKED, REPLY = "What is 3 * 3?", "3 * 3 is 9."
DIALOGUE = (SUM, SUMMED, ASKED, "", "9", REPLY)
HI = {"user_id": "u", "session_id": "p", "message": "Hi"}
PICTURE = {"image": "data:image/png;base64,iVBORw0KGgo=", "action": "analyze_only"}
READ = "小明的生日是5月3日。\n我们约好周五下午三点在咖啡馆见面。"
NOTHING = "There is nothing to do."

TALKS = {
    "chat": Talk(
        {"message_id": "m1", "content": SUM, "chat_id": "c"},
        {"message_id": "m2", "content": ASKED, "chat_id": "c"},
        REPLY,
        {"accumulated_content": REPLY, "iteration": 2},
        DIALOGUE,
    ),
    "companion": Talk(
        {"session_id": "c", **PICTURE},
        {"session_id": "c", "message": ASKED},
        REPLY,
        {"response": REPLY, "iteration": 1, "status": "completed"},
        ("[图片]", READ, ASKED, "", "9", REPLY),
    ),
    "session": Talk(
        {"message": SUM, "user_id": "u"},
        {"message": ASKED, "user_id": "u"},
        REPLY,
        {"iteration": 1, "rounds": []},
        (SUM, SUMMED, ASKED, REPLY),
    ),
    "pipeline": Talk(
        HI,
        HI,
        "You said",
        {"errors": [], "history": [], "retrieved_memories": []},
        context={"options": {"model_id": "unknown"}},
    ),
    "ops": Talk(
        {"input": "Hello", "session_id": "o"},
        {"input": "Hi", "session_id": "o"},
        "",  # what its model writes are instructions, and no text for users
        {"final_message": NOTHING, "iteration": 0},
        ("Hello", NOTHING, "Hi"),
    ),
}


async def _run(client: LangGraphClient, name: str, thread: str, **more: Any) -> str:
    """Stream a run and return the text of its models."""
    said: list[str] = []
    more["stream_mode"] = ["messages-tuple", "custom"]
    async for part in client.runs.stream(thread, name, **more):
        assert part.event != "error", part.data
        if part.event == "messages" and part.data[0]["type"] == "AIMessageChunk":
            said.append(part.data[0]["content"])
    return "".join(said)


async def _new(client: LangGraphClient) -> str:
    return (await client.threads.create())["thread_id"]


async def test_five_graphs_are_drawn_with_their_schemas(client: LangGraphClient) -> None:
    """Nodes, inputs and states are there to look at."""
    for name, graph in GRAPHS.items():
        [assistant] = await client.assistants.search(graph_id=name)
        drawn: Any = await client.assistants.get_graph(assistant["assistant_id"])
        assert {one["id"] for one in drawn["nodes"]} == set(graph.get_graph().nodes)
        schemas = await client.assistants.get_schemas(assistant["assistant_id"])
        given = set((schemas["input_schema"] or {})["properties"])
        assert TALKS[name].first.keys() | TALKS[name].second.keys() <= given
        assert TALKS[name].state.keys() <= set((schemas["state_schema"] or {})["properties"])


async def test_a_turn_begins_afresh_on_a_kept_thread(client: LangGraphClient) -> None:
    """The second turn streams and keeps its own reply alone; the history holds both."""

    async def talk(name: str, said: Talk) -> None:
        thread = await _new(client)
        await _run(client, name, thread, input=said.first, context=said.context)
        first: Any = await client.threads.get_state(thread)
        streamed = await _run(client, name, thread, input=said.second)
        assert streamed.startswith(said.streamed), name
        assert streamed.count(said.streamed or "{") == bool(said.streamed), name
        history: Any = await client.threads.get_history(thread, limit=50)
        values = history[0]["values"]
        assert values | said.state == values, name
        if said.messages:
            assert [one["content"] for one in values["messages"]] == list(said.messages)
        assert first["checkpoint"] in [one["checkpoint"] for one in history]
        if name == "pipeline":
            assert len(first["values"]["errors"]) == 2

    await asyncio.gather(*(talk(*one) for one in TALKS.items()))


async def test_a_chat_request_without_content_has_none_of_the_turn_before(
    client: LangGraphClient,
) -> None:
    """It asks for a reply to a message that is stored, and this one is not."""
    thread = await _new(client)
    await _run(client, "chat", thread, input={"message_id": "m5", "content": "Hello"})
    with pytest.raises(AssertionError, match="Refused"):
        await _run(client, "chat", thread, input={"message_id": "m6"})


EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "__start__": ({"message_id": "m4", "content": ASKED}, REPLY),
    "initialize": ({"messages": ASKED}, REPLY),
    "prompt_generation": ({"generated_prompt": "Be brief."}, SUMMED),
    "model_call": ({"accumulated_content": " Changed."}, f"{SUMMED} Changed."),
    "tool_execution": ({"messages": "85"}, "12 * 7 is 85."),
    "output_processing": ({"accumulated_content": " The end."}, f"{SUMMED} The end."),
    "cleanup": ({"finish_reason": "length"}, SUMMED),
}
"""What is changed as which node (of messages: the last), and what the chat graph then says."""


async def test_the_chat_graph_goes_on_from_a_state_changed_as_any_node(
    client: LangGraphClient,
) -> None:
    """Behind each node of a run its state is changed, and a fork runs to its end."""
    asked, thread = {"message_id": "m3", "content": SUM, "chat_id": "e"}, await _new(client)
    await _run(client, "chat", thread, input=asked)
    assert EDITS.keys() == {*GRAPHS["chat"].nodes}

    async def fork(node: str, edit: dict[str, Any], reply: str) -> None:
        copied: Any = await client.threads.copy(thread)  # type: ignore[func-returns-value]  # it does
        history: Any = await client.threads.get_history(copied["thread_id"], limit=20)
        pairs = itertools.pairwise(history)
        behind = next(after for after, before in pairs if before["next"] == [node])
        if content := edit.get("messages"):
            edit = {"messages": [behind["values"]["messages"][-1] | {"content": content}]}
        where: Any = {"checkpoint": behind["checkpoint"], "as_node": node}
        changed: Any = await client.threads.update_state(copied["thread_id"], edit, **where)
        values: Any = await client.runs.wait(
            copied["thread_id"], "chat", checkpoint=changed["checkpoint"], input=None
        )
        assert values["accumulated_content"] == reply, node

    await asyncio.gather(*(fork(node, *one) for node, one in EDITS.items()))


RESTART = {"input": "restart web", "session_id": "r"}
QUESTION = {"session_id": "q", "message": "Please ask me for a colour."}
BLUE = {"action": "approve", "data": {"answer": "blue"}}
ANSWERED = 'ask_human answers: {"action":"approve","data":{"answer":"blue"}}.'


@pytest.mark.parametrize(
    ("name", "body", "node", "answer", "state"),
    [
        ("ops", RESTART, "approve", {"action": "reject", "by": "ada"}, {"approved_by": "ada"}),
        ("companion", QUESTION, "human", BLUE, {"response": ANSWERED}),
    ],
)
async def test_an_interrupt_is_resumed(
    client: LangGraphClient, name: str, body: Any, node: str, answer: Any, state: Any
) -> None:
    """A thread waits for a person, and goes on with the answer."""
    thread = await _new(client)
    await _run(client, name, thread, input=body)
    waiting: Any = await client.threads.get_state(thread)
    assert waiting["next"] == [node]
    assert waiting["tasks"][0]["interrupts"]
    await _run(client, name, thread, command={"resume": answer})
    ended: Any = await client.threads.get_state(thread)
    assert ended["next"] == []
    assert ended["values"] | state == ended["values"]


def test_a_missing_file_that_is_named_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not start on another database than the one that is meant."""
    monkeypatch.setenv("CUTOVER_CONFIG", str(tmp_path / "cutovr.toml"))
    with pytest.raises(ConfigRefused, match=r"cutovr\.toml: No such file"):
        studio.settings()


async def test_a_run_that_was_kept_waits_for_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's queue begins before its application has opened the world."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUTOVER_CONFIG", raising=False)
    kept = asyncio.ensure_future(studio.chat())
    await asyncio.sleep(0)
    assert not kept.done()
    async with studio.lifespan(studio.app):
        assert await kept is GRAPHS["chat"]
        current()
