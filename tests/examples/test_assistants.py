"""The example services behind a router with the gateway: equal, told apart, taken over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from contract.wire.sse import SseDecoder
from tests.support.assistants import Name, assistants, needs_node
from tests.support.example_processes import invoked
from tests.support.pictures import PNG, url

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

PHOTO = url(PNG)


class Asked(NamedTuple):
    """One request: which conversation it belongs to, and what it asks."""

    conversation: str
    message: str
    picture: str | None = None


CLEAN = [
    Asked("texts", "How do I keep basil fresh for a week?"),
    Asked("texts", "And parsley, does it go the same way?"),
    Asked("texts", 'What does "al dente" {{mean}}, \\ exactly?\n\n1. pasta\n2. rice 🍝'),
    Asked("texts", ""),
    Asked("chinese", "怎样炖牛肉才会软？"),
    Asked("chinese", "再说说“火候”：大火还是小火？"),
    Asked("sums", "What is 12 * 7?"),
    Asked("sums", "Calculate 3 * (4 + 5) and 18 / 4 please"),
    Asked("sums", "Thank you. Which of them is larger?"),
    Asked("sums", "What is 15% of 80, then multiply it by 3?"),
    Asked("weights", "How many lb are 5 kg?"),
    Asked("weights", "Convert 2.5 kg to oz and 8 oz to g, then 3 lb to kg"),
    Asked("rounds", "Calculate 2 + 2, then add 3 to it, then multiply it by 10, after that 7 - 1"),
    Asked("rounds", "5 公斤等于多少磅？然后把结果乘以 3"),
    Asked("rounds", "谢谢，计算 8 * 9"),
    Asked("photos", "What is on this picture?", PHOTO),
    Asked("photos", "图片里有什么？", PHOTO),
    Asked("photos", "And how much is 6 * 7 of these?"),
    Asked("ends", "Write a very long story about bread"),
    Asked("ends", "This is a forbidden topic"),
]
"""Twenty requests in eight conversations."""


class Seed(NamedTuple):
    """A difference between two prompts: what the openai service says otherwise, and what shows it.

    `path` is where the report must find it.
    """

    written: str
    instead: str
    path: str
    asked: list[Asked]


QUESTION = "How do I keep basil fresh?"
ONE, TWO = [Asked("one", QUESTION)], [Asked("one", QUESTION), Asked("one", "And parsley?")]
SUM = [Asked("one", "What is 12 * 7?")]
SEEDS = {
    "word": Seed("cooking school", "cookery school", "messages[].system", ONE),
    "blank": Seed("at most five", "at most  five", "messages[].system", ONE),
    "mark": Seed("every weight.", "every weight!", "messages[].system", ONE),
    "sentence": Seed(" Never guess what a picture does not show.", "", "messages[].system", ONE),
    "role": Seed('"role": "system"', '"role": "developer"', "messages[].role", ONE),
    "history": Seed("*messages]", "*messages[-1:]]", "messages[]", TWO),
    "question": Seed(
        "return question.message", 'return f"Question: {question.message}"', "messages[].user", ONE
    ),
    "order": Seed(
        'return [{"type": "text", "text": question.message}, picture]',
        'return [picture, {"type": "text", "text": question.message}]',
        "messages[].user",
        [Asked("one", "What is on this picture?", PHOTO)],
    ),
    "result": Seed(
        ":.2f} {to_unit}",
        ":.1f} {to_unit}",
        "messages[].tool",
        [Asked("one", "How many lb are 5 kg?")],
    ),
    "arguments": Seed(
        '"name": call["name"], "arguments": call["arguments"]',
        '"name": call["name"], "arguments": call["arguments"].replace("12", "11")',
        "messages[].assistant.tool_calls[].function.arguments",
        SUM,
    ),
    "description": Seed(
        "such as 12 * 7", "such as 12 + 7", "more.tools[].function.description", ONE
    ),
    "schema": Seed('"required": ["expression"],', "", "more.tools[].function.parameters", ONE),
}
"""Twelve prompts that say something else."""


FOLDS: dict[str, dict[str, int]] = {
    "langgraph_service": {
        "absent": 33,
        "arguments": 12,
        "empty_content": 12,
        "max_tokens": 33,
        "numbers": 33,
    },
    "openai_node": {"absent": 33, "arguments": 1, "empty_content": 12},
}
"""In how many of all pairs each fold took different things from the two services."""


@pytest.mark.parametrize("graph", ["langgraph_service", "openai_node"])
async def test_clean_exchanges_are_equal_and_every_seeded_difference_is_found(
    graph: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any rule, over the openai package of Python, LangChain's and that of Node.js."""
    needs_node(graph)
    monkeypatch.chdir(tmp_path)
    variants = {name: (seed.written, seed.instead) for name, seed in SEEDS.items()}
    async with assistants(tmp_path, graph, variants) as both:
        ledger = both.services.router.ledger
        for asked in CLEAN:
            answer = await both.ask("clean", *asked)
            assert answer.endswith(b"event: done\ndata: {}\n\n")
        for name, seed in SEEDS.items():
            for asked in seed.asked:
                await both.ask(name, f"{name} {asked.conversation}", *asked[1:])
    books = {(line.flow, line.reason): count for line, count in ledger.counts.items()}
    await invoked("diff", "captures", "-o", "report")
    report = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    counts = report["counts"]
    causes: dict[str, list[str]] = {flow: [] for flow in counts["by_flow"]}
    ids = {cause["flow"]: cause["id"] for cause in report["clusters"]}
    for cause in report["clusters"]:
        causes[cause["flow"]].append(cause["path"].removeprefix("model.stream@gateway[]."))
    assert (len(CLEAN), len(SEEDS)) == (20, 12)
    assert counts["by_flow"]["clean"] == len(CLEAN)
    assert causes.pop("clean") == []
    assert causes == {name: [seed.path] for name, seed in SEEDS.items()}
    assert counts["different"] == len(SEEDS)
    asked_twice = {(name, "equal"): 1 for name, seed in SEEDS.items() if len(seed.asked) > 1}
    found = {(name, "different"): 1 for name in SEEDS}
    assert books == {("clean", "equal"): len(CLEAN), **asked_twice, **found}
    assert (counts["not_comparable"], counts["damaged"], counts["missing"]) == ({}, {}, 0)
    assert counts["folds"] == FOLDS[graph]
    for name in SEEDS:
        assert await unwaived(ids[name]) == ids.keys() - {name}


def written(folder: str) -> str:
    """Return the report in a folder."""
    return Path(folder, "report.json").read_text("utf-8")


async def unwaived(finding: str) -> set[str]:
    """Waive a cause in all flows; returns the flows of the causes that are found then."""
    words = "--owner", "Ann", "--reason", "agreed", "--until", "2100-01-01"
    await invoked("waive", finding, *words, "--file", f"{finding}.toml")
    await invoked("diff", "captures", "-o", "waived", "--waivers", f"{finding}.toml")
    report = json.loads(written("waived"))
    return {cause["flow"] for cause in report["clusters"] if not cause["waived"]}


async def test_an_answer_that_breaks_off_is_finished_by_the_other_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in mid-answer, with no call of the model more; the next is answered from the start."""
    monkeypatch.chdir(tmp_path)
    slow = "sim-chat?rate=100"
    async with assistants(tmp_path, "langgraph_service", {}, percent=100, model=slow) as both:
        calls = both.services.model.counts.attempts
        whole = await both.ask("clean", "one", QUESTION)
        async with both.post("clean", "two", QUESTION) as response:
            began: bytes = await response.content.readuntil(b"event: token\n")
            both.graph.kill()
            broken = began + await response.read()
        await both.settled()
        assert text_of(broken) == text_of(whole) != ""
        assert broken.count(b": served-by legacy ") == 1
        assert sum(calls.values()) == 2
        text_of(await both.ask("clean", "three", QUESTION))


def text_of(body: bytes) -> str:
    """Return the text of an answer that ends as it should."""
    *events, last = SseDecoder().feed(body)
    assert last.event == "done"
    assert {event.event for event in events} == {"token"}
    return "".join(json.loads(event.data)["text"] for event in events)
