"""The pipeline flow, told by both stacks."""

import re
from typing import Any

import pytest

from effects.memory import Memory, namespace
from legacy.pipeline import NODES
from loadtests.simulator import Answer
from rules.prompts import default_prompt
from tests.support.stage import STACKS, Stage, Told

pytestmark = pytest.mark.virtual

PARK: dict[str, Any] = {"user_id": "u", "session_id": "s", "message": " 还记得我们上次去公园吗？ "}


async def tell(stage: Stage, name: str, body: dict[str, Any], **options: Any) -> Told:
    """Serve a request; both stacks must play its tape exactly."""
    request = stage.request("pipeline", body, **options)
    return await stage.checked(await stage.tell("pipeline", request, [name]))


def text_of(told: Told) -> str:
    """Return the joined tokens."""
    return "".join(data["content"] for name, data in told.events if name == "token")


@pytest.mark.parametrize("name", STACKS)
async def test_memories_are_searched_where_the_check_says_so(
    stage: Stage, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The document's example: the memory of the park is found, shown to the model, and named."""
    caplog.set_level("INFO")
    memory = Memory("m1", "上次和女儿去了中央公园", relation="女儿")
    await stage.world.memory.aput(namespace("u"), memory.id, memory.value())
    body = PARK | {"interlocutor": {"name": "小红", "relation": "女儿"}, "user_name": "张三"}
    told = await tell(stage, name, body)
    check, answer = (one.body for one in stage.sim.requests)
    assert check["messages"][-1]["content"] == default_prompt(
        "pipeline_memory_check", {"message": "还记得我们上次去公园吗？"}
    )
    limit = check.get("max_tokens") or check.get("max_completion_tokens")
    assert (check["temperature"], limit) == (0.1, 10)
    assert "- 上次和女儿去了中央公园" in answer["messages"][0]["content"]
    kind, last = told.events[-1]
    assert kind == "message"
    assert last == {
        "success": True,
        "message": text_of(told),
        "token_info": last["token_info"],
        "end_intent": False,
        "memories": ["m1"],
        "errors": [],
    }
    assert last["token_info"]["action"] == "continue"
    assert last["token_info"]["estimated"]
    [line] = [one for one in caplog.messages if one.startswith("exchange=")]
    took = line.partition("nodes_ms=")[2].split(",")
    assert [one.partition(":")[0] for one in took] == [*NODES]
    assert all(re.search(r":\d+\.\d\(\d+\.\d%\)$", one) for one in took)


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(
    ("limit", "action", "notice"),
    [
        (100, "continue", ""),
        (14, "warn", "已经比较长"),
        (11, "compress", "最早的内容"),
        (10, "end", "期待下次"),
    ],
)
async def test_the_token_monitor_decides_what_is_appended(
    stage: Stage, name: str, limit: int, action: str, notice: str
) -> None:
    """At 70, 85 and 95 % of the limit; the notice is one more token, and part of the message."""
    stage.sim.script([Answer(text="不需要检索"), Answer(text="好的。")])
    body = PARK | {"message": "今天天气怎么样呢？我"}
    told = await tell(stage, name, body, token_limit=limit)
    last = told.events[-1][1]
    assert last["token_info"] | {"estimated": True} == {
        "used": 10,
        "limit": limit,
        "action": action,
        "estimated": True,
    }
    assert notice in last["message"]
    assert last["message"] == text_of(told)


@pytest.mark.parametrize("name", STACKS)
async def test_turns_are_remembered_and_a_goodbye_is_noticed(stage: Stage, name: str) -> None:
    """The next turn shows the model what was said; the wish to end is a flag."""
    await tell(stage, name, PARK)
    told = await tell(stage, name, PARK | {"message": "好的，再见"})
    assert told.events[-1][1]["end_intent"]
    shown = [one["content"] for one in stage.sim.requests[-1].body["messages"]]
    assert "还记得我们上次去公园吗？" in shown
