"""What the simulated model answers, and the prose it is written in."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from contract.flows.companion import CompanionOptions
from loadtests.simulator import ChatCompletionRequest, Profile, script_for
from loadtests.simulator.texts.prose import PHRASES, Language, language_of, topic_of
from loadtests.simulator.texts.tasks import call_rounds
from rules.memories import confident_facts
from rules.ops.instructions import assessed, read_decision
from tests.loadtests.simulator.asking import ALL, asked, finish, text
from tests.support.pictures import JPEG, PNG, WEBP, url

SCENES = [(language, scene) for language, bank in PHRASES.items() for scene in bank.scenes]
JSON = {"type": "json_object"}


@pytest.mark.parametrize(("language", "scene"), SCENES)
def test_every_picture_tells_something_to_remember(language: Language, scene: str) -> None:
    """Sure enough to be proposed to the user."""
    script = script_for(asked(scene, response_format=JSON), Profile())
    found = confident_facts(text(script), CompanionOptions().least_confidence)
    assert len(found) == 1, language


@pytest.mark.parametrize(
    ("scene", "fact"),
    [
        (PHRASES["en"].scenes[0], "call Ana on Friday"),
        (PHRASES["zh"].scenes[0], "周五给安娜打电话"),
    ],
)
def test_what_is_written_in_a_picture_goes_before_what_it_shows(scene: str, fact: str) -> None:
    """As the words between quotation marks; the notebook itself is no fact."""
    (found,) = confident_facts(text(script_for(asked(scene, response_format=JSON), Profile())), 0.3)
    assert found.text == fact


@pytest.mark.parametrize("image", [url(PNG), url(JPEG, "image/jpeg"), url(WEBP, "image/webp")])
def test_pictures_are_read_as_one_of_the_scenes(image: str) -> None:
    """Whatever their type."""
    shows = [{"type": "text", "text": "[图片]"}, {"type": "image_url", "image_url": {"url": image}}]
    body = {"model": "sim-chat", "stream": True, "messages": [{"role": "user", "content": shows}]}
    read = text(script_for(msgspec.convert(body, ChatCompletionRequest), Profile()))
    assert any(read.endswith(scene) for scene in PHRASES["zh"].scenes)


CHECK = {"role": "system", "content": "先查记忆吗？回答“需要检索”或“不需要检索”。"}


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("还记得我们上次去公园吗？", "需要检索"),
        ("What did we do last summer? Do you remember?", "需要检索"),
        ("你的家人好吗", "需要检索"),
        ("你好，身体怎么样？", "不需要检索"),
        ("What is 12 * 7?", "不需要检索"),
        ("违禁话题", "不需要检索"),
    ],
)
def test_whether_memories_are_needed_is_decided_by_the_question(said: str, answer: str) -> None:
    """In the words of the prompt, within its ten tokens, and the same every time."""
    messages = [CHECK, {"role": "user", "content": said}]
    for _ in range(2):
        request = asked("x", messages=messages, max_tokens=10)
        script = script_for(request, Profile())
        assert (text(script), finish(script)) == (answer, "stop")


FILE = Path(__file__).resolve().parents[3] / "cutover" / "demo_messages.jsonl"


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the file."""

    message_id: str
    chat_id: str
    user_name: str | None
    content: str
    note: str


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    """Read all of them."""
    lines = FILE.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Message) for line in lines]


def test_there_are_enough_and_each_is_its_own(messages: list[Message]) -> None:
    """At least 66, half of them Chinese, some in conversations, some long."""
    assert len(messages) >= 66
    assert len({message.message_id for message in messages}) == len(messages)
    chinese = [message for message in messages if language_of(message.content) == "zh"]
    assert 0.4 <= len(chinese) / len(messages) <= 0.6
    chats = Counter(message.chat_id for message in messages)
    assert sum(1 for turns in chats.values() if turns >= 3) >= 3
    assert sum(1 for message in messages if len(message.content) > 1500) >= 3


def test_every_ending_and_every_kind_of_tool_use_is_seen(messages: list[Message]) -> None:
    """As the simulated provider answers them."""
    ends = Counter(finish(script_for(asked(it.content, offer=ALL), Profile())) for it in messages)
    assert ends["content_filter"] >= 2
    assert ends["length"] >= 2
    assert ends["stop"] >= 30
    asked_for = [call_rounds(message.content, ALL) for message in messages]
    assert sum(1 for stages in asked_for if len(stages) > 1) >= 4
    assert sum(1 for stages in asked_for if stages and len(stages[0]) > 1) >= 4
    assert sum(1 for stages in asked_for if [len(stage) for stage in stages] == [1]) >= 8


@pytest.mark.parametrize("sign", ["{{7*7}}", "<&>", "```", '{"', "@example.", "555", "🍷"])
def test_awkward_signs_are_among_them(messages: list[Message], sign: str) -> None:
    """Templates, markup, code, JSON, personal data, emoji."""
    assert any(sign in message.content for message in messages)


def test_people_in_them_are_invented(messages: list[Message]) -> None:
    """Addresses belong to domains kept for examples."""
    found = [hit for it in messages for hit in re.findall(r"@[\w.]+", it.content)]
    assert found
    assert all(re.fullmatch(r"@example\.(com|org|net)[.,]?", hit) for hit in found)


@pytest.mark.parametrize(
    ("text", "language", "topic"),
    [
        ("How can I improve my time management skills?", "en", "time management skills"),
        ("为什么秋天的树叶会变红？", "zh", "为什么秋天的树叶会变"),
        ("请帮我解释 asyncio", "zh", "请帮我解释"),
        ("", "en", ""),
        ("🚴", "en", ""),
        ("吗", "zh", ""),
    ],
)
def test_topics(text: str, language: str, topic: str) -> None:
    """The longest run of words, cut short."""
    assert language_of(text) == language
    assert topic_of(text, language_of(text)) == topic


OPS = {"role": "system", "content": 'Write {"instructions":[…]} or {"final":"…"}.'}
DONE = '{"worker":"system","action":"disk","ok":true,"message":"two disks"}'
FAILED = '{"worker":"system","action":"disk","ok":false,"message":"no disks"}'


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (("check the disks and the memory",), ["system.disk", "system.memory"]),
        (("why is db:5432 slow? show the logs of db",), ["network.reach", "container.logs"]),
        (("check the disks, then restart web",), ["system.disk"]),
        (("check the disks, then restart web", DONE), ["container.restart"]),
        (("检查磁盘，然后重启 web", "Error: unclear"), ["container.restart"]),
        (("delete the temporary files *.log",), ["system.delete_temporary"]),
        (("部署版本 v2",), ["deploy.run"]),
        (("check the disks", DONE), "two disks"),
        (("check the disks, then restart web", FAILED), "no disks"),
        (("restart the first one",), "No worker is needed for that."),
        (("check the disks", DONE, "你好"), "这不需要执行任何操作。"),
    ],
)
def test_instructions_are_what_the_text_asks_for(
    said: tuple[str, ...], step: list[str] | str
) -> None:
    """Step by step, each with what came of the one before, and a reply at the end."""
    messages = [OPS, *({"role": "user", "content": one} for one in said)]
    found = read_decision(text(script_for(asked("x", messages=messages), Profile())))
    named = [f"{one.worker}.{one.action}" for one in found.instructions]
    assert (named or found.final) == step
    assert all(not assessed(one).refused for one in found.instructions)
