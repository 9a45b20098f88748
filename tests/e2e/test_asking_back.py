"""A simulated model that asks back is answered, on either stack."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.report import Report
from contract.flows.companion import CompanionOptions
from router.stack import StackName
from tests.e2e.test_companion import BOTH, invoked
from tests.support.companion_client import hitl_id, picture, post, setup
from tests.support.deployment import Answer, Deployment, deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

FORM = {
    "title": "Remind me to call mum",
    "fields": [{"name": "when", "label": "When?", "type": "text", "required": True}],
}
TURN = {"session_id": "s", "message": "Remind me to call mum: ask me when first."}
PICTURE = picture(session="p") | {"user_id": "ann"}
LATER = {"session_id": "t", "user_id": "ann", "message": "你还记得安娜吗？"}
FACT = "周五给安娜打电话"
CONFIDENCE = re.compile(r"（置信度 (\d\.\d\d)）")


@dataclass
class Client:
    """Asks a deployment, and keeps what it is told beside words, which follow the time of day."""

    told: list[Any] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    async def ask(self, place: Deployment, path: str, body: object, stack: StackName) -> Answer:
        """Ask the companion, served by a stack."""
        answer = await post(place.session, place.url + path, body)
        assert answer.status == 200, answer.body
        assert answer.headers["x-cutover-served"].startswith(stack)
        events = [
            {**event, "hitl_id": ""} if "hitl_id" in event else event for event in answer.events
        ]
        said = [event["content"] for event in events if set(event) == {"content"}]
        self.words.append("".join(said))
        self.told.append([event for event in events if set(event) != {"content"}])
        return answer

    async def answer(self, place: Deployment, hitl: str, **said: Any) -> None:
        """Answer a question; the same again changes nothing."""
        for _ in range(2):
            answer = await post(
                place.session, f"{place.url}/hitl/respond", {"hitl_id": hitl, **said}
            )
            assert answer.status == 200


async def story(folder: Path, first: StackName, second: StackName) -> Client:
    """Be asked on one stack, twice, and go on on another in another process's place."""
    client = Client()
    async with deployed(folder, setup(folder, first)) as place:
        asked = await client.ask(place, "/chat", TURN, first)
        shown = await client.ask(place, "/chat/image", PICTURE, first)
    async with deployed(folder, setup(folder, second)) as place:
        await client.answer(place, hitl_id(asked), action="approve", data={"when": "at six"})
        await client.answer(place, hitl_id(shown), action="approve")
        for hitl in (hitl_id(asked), hitl_id(shown)):
            await client.ask(place, "/hitl/continue", {"hitl_id": hitl}, second)
        await client.ask(place, "/chat", LATER, second)
    return client


async def test_a_question_goes_on_alike_wherever_it_was_put(tmp_path: Path) -> None:
    """On the same stack and on the other: the same frames, the answer used, the fact recalled."""
    stories = []
    for first, second in product(BOTH, BOTH):
        folder = tmp_path / f"{first}-{second}"
        folder.mkdir()
        stories.append(await story(folder, first, second))
    for client in stories:
        assert client.told == stories[0].told
        assert client.words[2].startswith("Noted, you say: at six.")
        assert client.words[3].endswith("已记住 1 条。")
        assert FACT in client.words[4]
    asked, shown, gone_on, _, recalled = stories[0].told
    assert asked[1]["form"] == FORM
    assert gone_on[0]["content"] == '{"action":"approve","data":{"when":"at six"}}'
    assert recalled[1] == {"tool": "search_memory", "ok": True, "content": f'["{FACT}"]'}
    (proposed,) = shown[0]["form"]["fields"]
    (confidence,) = CONFIDENCE.findall(proposed["label"])
    assert float(confidence) >= CompanionOptions().least_confidence


@pytest.mark.parametrize("stack", BOTH)
async def test_the_other_stack_says_the_same_words(tmp_path: Path, stack: StackName) -> None:
    """Shadowed, before the pause and after it: nothing differs."""
    client = Client()
    async with deployed(tmp_path, setup(tmp_path, stack, shadow=100)) as place:
        hitl = hitl_id(await client.ask(place, "/chat", TURN, stack))
        await client.answer(place, hitl, action="edit", data={"when": "at six"})
        await client.ask(place, "/hitl/continue", {"hitl_id": hitl}, stack)
        await client.ask(place, "/chat", LATER, stack)
        await place.lines()
        assert place.books() == {"compared(equal)": 3}
    report = tmp_path / "report"
    status = await invoked(
        "diff", str(tmp_path / "captures"), "-o", str(report), "--processes", "1"
    )
    counted = msgspec.json.decode((report / "report.json").read_bytes(), type=Report).counts
    assert (status, counted.pairs) == (0, 3)


@pytest.mark.parametrize("stack", BOTH)
async def test_where_no_form_may_be_put_nobody_is_asked(tmp_path: Path, stack: StackName) -> None:
    """The tool is not offered, and the model answers in words."""
    client = Client()
    async with deployed(tmp_path, setup(tmp_path, stack, "ask_human = false")) as place:
        await client.ask(place, "/chat", TURN, stack)
    assert client.told[0][-1] == {"status": "completed"}
    assert client.words[0]
