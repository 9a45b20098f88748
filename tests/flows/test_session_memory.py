"""What sessions teach: who remembers what, when, from where, and that it is read once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import openai
import pytest

from cutover import TapedStore
from effects import conversations
from effects.memory import Memory, VectorStore, memories, namespace
from effects.world import current, use
from graph_impl.flow import prompt
from legacy.model import render
from loadtests.simulator import Answer, Cut
from rules.prompts import default_prompt
from tests.flows.test_session import FIRST, SECOND, SYSTEM, say, sent
from tests.support.stage import STACKS, Stage

pytestmark = pytest.mark.virtual

OTHER = {"legacy": "graph", "graph": "legacy"}
NAME = "用户名字是张三"
PLAIN = Answer(text="好。")


def lesson(*operations: dict[str, Any]) -> Answer:
    """Return a model's answer to what is worth remembering."""
    return Answer(text=msgspec.json.encode({"operations": operations}).decode())


def add(text: str, **more: Any) -> dict[str, Any]:
    """Return the operation that adds a fact."""
    return {"op": "add", "text": text, **more}


async def known(user: str = "u") -> list[tuple[str, str, str]]:
    """Return what is remembered of a user: text, kind, session."""
    found = memories(await current().memory.asearch(namespace(user), limit=99))
    return sorted((one.text, one.type, one.session_id) for one in found)


async def teach(*texts: str, session: str = "old", user: str = "u") -> None:
    """Remember texts, as another session taught them."""
    for text in texts:
        value = Memory(text, text, "other", session).value()
        await current().memory.aput(namespace(user), text, value)


class Embedder:
    """Embeds texts by the letters a, b and c in them; fails where it is told to."""

    def __init__(self) -> None:
        self.fails = False

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        if self.fails:
            raise openai.APIConnectionError(request=None)  # type: ignore[arg-type]  # as if away
        return [[float(text.count(letter)) + 0.01 for letter in "abc"] for text in texts]


@contextmanager
def embedding() -> Iterator[Embedder]:
    """Have memory searched by letters within the block."""
    embedder, world = Embedder(), current()
    store = TapedStore(VectorStore(world.database, embedder))
    with use(replace(world, memory=store)):
        yield embedder


@pytest.mark.parametrize("name", STACKS)
async def test_a_name_learnt_in_one_session_is_known_in_the_next(stage: Stage, name: str) -> None:
    """The document's own example, without an embedder, and across the two stacks."""
    taught = lesson(add(NAME, type="identity"))
    stage.sim.script([Answer(text="你好张三！"), Answer(text="你叫张三。"), taught])
    await say(stage, name, FIRST, "first", user_id="user-123")
    learnt = await say(stage, name, SECOND, "first", user_id="user-123")
    assert await known("user-123") == [(NAME, "identity", "first")]
    assert learnt.events[-1][1]["type"] == "done"
    conversation = "user: 我叫张三\nassistant: 你好张三！\nuser: 我叫什么？\nassistant: 你叫张三。"
    assert sent(stage)[-1][-1] == {"role": "user", "content": conversation}
    stage.sim.script([Answer(text="你叫张三。")])
    told = await say(stage, OTHER[name], SECOND, "second", user_id="user-123")
    system = {"role": "system", "content": f"你是一个有用的助手。\n\n相关记忆：\n- {NAME}"}
    assert sent(stage)[-1] == [system, {"role": "user", "content": SECOND}]
    await stage.checked(learnt)
    await stage.checked(told)
    stored = await conversations.messages("session", "second")
    assert not any("相关记忆" in one.content for one in stored)


@pytest.mark.parametrize("name", STACKS)
async def test_extraction_begins_with_the_fourth_message_and_runs_behind_done(
    stage: Stage, name: str
) -> None:
    """The first turn asks once, the second twice; the usage in `done` leaves extraction out."""
    stage.sim.script([PLAIN, PLAIN, lesson()])
    first = await say(stage, name, "你好", user_id="u")
    assert len(sent(stage)) == 1
    second = await say(stage, name, "你好", user_id="u")
    assert len(sent(stage)) == 3
    names = [one.call.name for one in second.exchange.tape.entries]
    assert names.index("conversations.add") < names.index("store.get")
    asked = [one.body for one in stage.sim.requests]
    assert "tools" not in asked[2]
    assert asked[2]["temperature"] == 0
    usage = [one.events[-1][1]["data"]["usage"]["completion_tokens"] for one in (first, second)]
    assert usage[0] == usage[1]


@pytest.mark.parametrize("name", STACKS)
async def test_each_message_is_read_once(stage: Stage, name: str) -> None:
    """Also where the stacks take turns; what failed to be read is read with the next message."""
    read = []
    cut = Answer(text="{", fault=Cut(after=1))
    for number, (serving, answer) in enumerate(
        [(name, None), (name, lesson()), (OTHER[name], cut), (name, lesson()), (name, lesson())]
    ):
        stage.sim.script([Answer(text=f"a{number}"), *([answer] if answer else [])])
        told = await say(stage, serving, f"q{number}", user_id="u")
        assert told.events[-1][1]["type"] == "done"
        await stage.checked(told)
        if answer is not None:
            read.append(sent(stage)[-1][-1]["content"].count("user:"))
    assert read == [2, 1, 2, 1]


CHANGES: Mapping[str, tuple[tuple[str, ...], list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "an addition": ((), [add("a", type="plan")], [("a", "plan", "s")]),
    "twice the same": ((), [add("a"), add(" a ")], [("a", "other", "s")]),
    "what is known": (("a",), [add("a")], [("a", "other", "old")]),
    "too unsure": ((), [add("a", confidence=0.2)], []),
    "an update": (("a",), [{"op": "update", "id": "m1", "text": "a, b"}], [("a, b", "other", "s")]),
    "an update of another kind": (
        ("a",),
        [{"op": "update", "id": "[m1]", "text": "b", "type": "plan"}],
        [("b", "plan", "s")],
    ),
    "an update of nothing": (
        (),
        [{"op": "update", "id": "m7", "text": "b"}],
        [("b", "other", "s")],
    ),
    "a deletion": (("a",), [{"op": "delete", "id": "m1"}, add("b")], [("b", "other", "s")]),
    "a deletion of nothing": (("a",), [{"op": "delete", "id": "m2"}], [("a", "other", "old")]),
    "no JSON": (("a",), [], [("a", "other", "old")]),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("name", STACKS)
async def test_changes_are_made_as_the_model_says(stage: Stage, name: str, case: str) -> None:
    """A fact that is known is not added again, and what is changed belongs to this session."""
    before, operations, after = CHANGES[case]
    await teach(*before)
    answer = Answer(text="没有。") if case == "no JSON" else lesson(*operations)
    stage.sim.script([PLAIN, answer])
    told = await say(stage, name, "Hi", user_id="u", options={"extract_from": 2})
    assert await known() == after
    await stage.checked(told)


@pytest.mark.parametrize("name", STACKS)
async def test_near_duplicates_are_not_added(stage: Stage, name: str) -> None:
    """A fact whose nearest memory is as good as the same stays out, one that differs comes in."""
    with embedding():
        await teach("aaaa")
        stage.sim.script([PLAIN, lesson(add("aaaaa"), add("bb"), add("bbb"))])
        told = await say(stage, name, "c", user_id="u", options={"extract_from": 2})
        assert [one[0] for one in await known()] == ["aaaa", "bb"]
        await stage.checked(told)


@pytest.mark.parametrize("name", STACKS)
async def test_no_answer_waits_for_memories_that_cannot_be_found(stage: Stage, name: str) -> None:
    """Without its embeddings a session is answered without memories, and learns nothing."""
    with embedding() as embedder:
        await teach("a")
        embedder.fails = True
        stage.sim.script([PLAIN])
        told = await say(stage, name, "a", user_id="u", options={"extract_from": 2})
        assert told.events[-1][1]["type"] == "done"
        assert sent(stage) == [[SYSTEM, {"role": "user", "content": "a"}]]
        await stage.checked(told)


@pytest.mark.parametrize("name", STACKS)
async def test_the_nearest_five_are_recalled_and_none_of_this_session(
    stage: Stage, name: str
) -> None:
    """Nearest first; memories of another user, or of the session itself, are not looked at."""
    with embedding():
        await teach("b", "ab", "aab", "aaab", "bb", "c")
        await teach("aaaa", session="s")
        await teach("aaa", user="other")
        await say(stage, name, "a", user_id="u")
    system = sent(stage)[0][0]["content"]
    assert system.startswith("你是一个有用的助手。\n\n相关记忆：\n- aaab\n- aab\n- ab\n- ")
    assert system.count("\n- ") == 5
    assert not {"aaaa", "aaa"} & set(system.replace("- ", "").splitlines())


RECALLS = {
    "always": ({"recall": "always"}, "u", [True, True]),
    "new sessions only": ({"recall": "new_session_only"}, "u", [True, False]),
    "without a user": ({}, None, [False, False]),
}


@pytest.mark.parametrize("case", RECALLS)
@pytest.mark.parametrize("name", STACKS)
async def test_recall_is_a_choice(stage: Stage, name: str, case: str) -> None:
    """Whether the first and the second turn of a session are given memories."""
    options, user, expected = RECALLS[case]
    await teach("tea")
    for message in ("Hi", "Hi again"):
        told = await say(stage, name, message, user_id=user, options={**options, "extract_from": 0})
        await stage.checked(told)
    assert ["tea" in one[0]["content"] for one in sent(stage)] == expected


QUIET = {
    "turned off": ("u", {"extract_from": 0}),
    "without a user": (None, {"extract_from": 2}),
    "too short": ("u", {"extract_from": 3}),
}


@pytest.mark.parametrize("case", QUIET)
@pytest.mark.parametrize("name", STACKS)
async def test_nothing_is_read(stage: Stage, name: str, case: str) -> None:
    """Where it is turned off, where there is no user, where too little was said."""
    user, options = QUIET[case]
    await say(stage, name, "我喜欢茶。", user_id=user, options=options)
    assert len(sent(stage)) == 1


@pytest.mark.parametrize("name", STACKS)
async def test_what_another_user_says_is_not_remembered_of_this_one(
    stage: Stage, name: str
) -> None:
    """Two users of one session are told apart when it is read."""
    stage.sim.script([PLAIN, PLAIN, lesson()])
    await say(stage, name, "我喜欢茶。", user_id="ada")
    await say(stage, name, "我喜欢酒。", user_id="bob", options={"extract_from": 2})
    assert sent(stage)[-1][-1]["content"] == "user: 我喜欢酒。\nassistant: 好。"


PARAMETERS: Sequence[tuple[str, dict[str, Any]]] = (
    ("session_system", {"system_prompt": "你 {x} {{ y }}", "memories": ""}),
    ("session_system", {"system_prompt": "你", "memories": "\n\n相关记忆：\n- a"}),
    ("session_extraction", {"known": []}),
    ("session_extraction", {"known": ["[m1] a"]}),
    ("session_extraction", {"known": ["[m1] a\n  b", "[m2] {{ c }} {d}"]}),
)


@pytest.mark.parametrize(("which", "parameters"), PARAMETERS)
def test_prompts_are_the_same_in_both_languages(which: str, parameters: dict[str, Any]) -> None:
    """And the built-in ones, which stand in for a missing file, say the same."""
    expected = default_prompt(which, parameters)
    assert render(which, parameters) == prompt(which, parameters) == expected
