"""`cutover doctor --probe`: what services answer, held against what is configured."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from tests.support.recorded_bodies import TOLD, Story, line, sse
from tests.support.scripted_service import HELLO, LINES, WHOLE, says, serving, streams

pytestmark = pytest.mark.sockets

BODY = '{"message":"Hello"}'
OPENAI = streams(TOLD["openai"](Story()))
AI_SDK = streams(TOLD["ai-sdk"](Story()))
NO_TEXT = streams(TOLD["openai"](Story(pieces=(), thoughts=())))

SERVICES = """
[stores]
conversations = "sqlite:///{folder}/store.sqlite"
memory = "memory://"
pauses = "memory://"
[stacks.legacy]
url = "{old}"
flows = ["support"]
resumable = true
[stacks.graph]
url = "{new}/v2"
flows = ["support"]
shadow_safe = true
[gateway]
enabled = true
[providers.p]
base_url = "{old}"
[models.m]
provider = "p"
"""
FLOW = f"""
[flows.support]
path = "/api/support"
dialect = "openai"
example = '{BODY}'
enable_langgraph = true
langgraph_percent = 10.0
shadow_percent = 100.0
"""


async def doctor(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Examine a configuration; returns the status, and what was printed on one line."""
    path = folder / "cutover.toml"
    path.write_text(text, "utf-8")
    command = ["doctor", "--config", str(path), *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    return result.exit_code, " ".join(result.output.split())


def configured(folder: Path, old: str, new: str, flow: str = FLOW) -> str:
    """Write a configuration of two services."""
    return SERVICES.format(folder=folder, old=old, new=new) + flow


async def test_each_service_is_asked_once_and_what_holds_is_said(tmp_path: Path) -> None:
    """With the flow's example, as a shadow; which promise a request cannot show is said, too."""
    async with serving(OPENAI) as old, serving(OPENAI) as new:
        text = configured(tmp_path, old.url, new.url)
        status, said = await doctor(tmp_path, text, "--probe", "-H", "Authorization: s3cret")
        assert status == 0, said
        assert [one.line for one in (*old.asked, *new.asked)] == [
            "POST /api/support HTTP/1.1",
            "POST /v2 HTTP/1.1",
        ]
        for asked in (*old.asked, *new.asked):
            assert asked.body.decode() == BODY
            assert asked.header("x-cutover-role") == ["shadow"]
            assert asked.header("authorization") == ["s3cret"]
    assert "s3cret" not in said
    for words in (
        "/api/support, support: 2 requests sent, with x-cutover-role: shadow",
        "good legacy: as configured text/event-stream, ",
        "good graph: as configured",
        "text at choices[*].delta.content: 4 pieces",
        "shadow, legacy serving holds graph answers a shadow's request; no request shows",
        "fallback, graph serving holds legacy answers in the format that clients of graph read",
        "takeover, graph serving holds both have a text at the place that the dialect names",
    ):
        assert words in said, said


async def test_without_probe_nothing_is_sent(tmp_path: Path) -> None:
    """It costs what a request costs."""
    async with serving(OPENAI) as old, serving(OPENAI) as new:
        status, said = await doctor(tmp_path, configured(tmp_path, old.url, new.url))
        assert (status, old.asked, new.asked) == (0, [], [])
    assert "what each step gives, and what it takes mirror yes" in said


async def test_a_service_in_another_format_is_missing_and_named(tmp_path: Path) -> None:
    """Nothing holds between the two then."""
    async with serving(OPENAI) as old, serving(AI_SDK) as new:
        text = configured(tmp_path, old.url, new.url)
        status, said = await doctor(tmp_path, text, "--probe")
    assert status == 1
    assert "missing graph: not in the format that is configured, but in ai-sdk" in said
    assert "shadow, legacy serving fails graph did not answer in the configured format" in said
    assert " holds " not in said


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(404), "missing graph: no stream: 404: it has nothing at this path"),
        (says(401), "missing graph: no stream: 401: it wants credentials"),
        (streams(sse({"code": "quota"}, "error")), "a stream that reports a failure (quota)"),
    ],
)
async def test_a_service_that_does_not_stream_is_missing(
    tmp_path: Path, answer: object, why: str
) -> None:
    """With what it says, and what to do."""
    async with serving(OPENAI) as old, serving(answer) as new:  # type: ignore[arg-type]
        status, said = await doctor(tmp_path, configured(tmp_path, old.url, new.url), "--probe")
    assert (status, why in said) == (1, True), said


async def test_an_answer_without_text_keeps_no_takeover(tmp_path: Path) -> None:
    """The others hold."""
    async with serving(NO_TEXT) as old, serving(OPENAI) as new:
        status, said = await doctor(tmp_path, configured(tmp_path, old.url, new.url), "--probe")
    assert status == 0
    assert "takeover, graph serving fails no text was found in the answer of legacy" in said
    assert "fallback, graph serving holds" in said


async def test_a_flow_is_asked_with_the_body_that_is_given(tmp_path: Path) -> None:
    """Of several flows one has to be named; one without a request is not asked."""
    other = '[flows.lines]\npath = "/api/lines"\ndialect = "ndjson"\n'
    lines = streams(
        line({"message": {"content": "a"}, "done": False}) + line({"done": True}), kind=LINES
    )
    async with serving(lines) as old, serving(lines) as new:
        text = configured(tmp_path, old.url, new.url, FLOW + other)
        text = text.replace('["support"]', '["support", "lines"]')
        status, said = await doctor(tmp_path, text, "--probe", "--body", '{"x":1}')
        assert (status, "--flow support|lines" in said, old.asked) == (2, True, [])
        given = ("--probe", "--flow", "lines", "--body", '{"x":1}')
        status, said = await doctor(tmp_path, text, *given)
        assert (status, len(old.asked), len(new.asked)) == (0, 1, 1), said
        assert "/api/lines, lines: 2 requests sent" in said
        status, said = await doctor(tmp_path, text, "--probe", "--flow", "lines")
        assert (status, len(old.asked)) == (0, 1)
        assert "/api/lines, lines: not asked, no request is known" in said
        status, said = await doctor(tmp_path, text, "--probe", "--flow", "chat")
        assert (status, "no service behind an address has flow 'chat'" in said) == (2, True)


async def test_a_built_in_flow_behind_an_address_is_held_against_its_own_events(
    tmp_path: Path,
) -> None:
    """An event that is none of the flow's is another format."""
    both = '[stacks]\nlegacy = "{url}/chat/sse"\n[stores]\nconversations = "sqlite:///{folder}/s"\n'
    given = ("--probe", "--flow", "chat", "--body", json.dumps(HELLO))
    story = streams(TOLD["chat"](Story()))
    for answer, words in (
        (story, "good legacy: as configured"),
        (streams(WHOLE), "missing legacy"),
    ):
        async with serving(answer) as old:
            text = both.format(url=old.url, folder=tmp_path)
            _, said = await doctor(tmp_path, text, *given)
        assert words in said, said
        assert "chat: one request sent" in said
