"""Prompts of a team's own, in a folder: converted with proof, and read alike by both stacks."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

import graph_impl
import graph_impl.templates
import legacy
import legacy.templates
from contract.flows.chat import ChatRequest
from contract.flows.session import SessionRequest
from contract.model import AssistantMessage, Chunk, Message, SystemMessage, UserMessage
from contract.stores import Turn
from cutover.cli import app
from router.serving.stack import LocalStack
from rules.prompts import ChatPrompt, PromptRefused, chat_file
from tests.support.companion_turns import Visit, image, turn
from tests.support.flow_runs import DIRECTIONS, Case, Played, Scene, same_on_both
from tests.support.ops_turns import shift
from tests.support.pipeline_turns import NOT_NEEDED, Talk
from tests.support.pipeline_turns import body as talk_body
from tests.support.session_turns import Saying

FLOWS = ("chat", "companion", "ops", "pipeline", "session")
OK = (Chunk(text="ok"), Chunk(finish="stop"))

PROMPTS = {
    "chat_system.j2": '{"today": "{{ current_date }}"} {{ city }} {literal}\n',
    "companion_system.chat/1.system.j2": "Feeling {{ emotion }}.\n{{ working_memory }}\n",
    "companion_system.chat/2.user.j2": "an example",
    "companion_system.chat/3.assistant.j2": "its answer {x}",
    "companion_system.chat/4.history.placeholder": "",
    "companion_system.chat/5.system.j2": "Mind {{ memories }}\n",
    "pipeline_memory_check.chat/1.system.j2": "{{ needed }} or {{ not_needed }}\n",
    "pipeline_memory_check.chat/2.user.j2": "an example",
    "pipeline_system.j2": "{{ system_prompt }}{literal}{{ memories }}{{ no_such_value }}",
    "ops_system.j2": "Instruct: {{ workers }}\n",
    "companion_vision.j2": "Read. Nothing is {{ no_text }}.\n\n",
    "companion_extraction.chat/10.user.j2": "then\n",
    "companion_extraction.chat/9.system.j2": 'Write {"memories":[]}',
    "session_system.chat/1.system.j2": "{{ system_prompt }}{{ memories }}",
    "session_system.chat/2.ai.j2": "Hello!\r\n",
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files into a folder, as they are."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def stacks_on(folder: Path) -> dict[str, LocalStack]:
    """Return both stacks with the prompts of one folder."""
    folders = dict.fromkeys(FLOWS, folder)
    return {
        "legacy": LocalStack("legacy", legacy.with_prompts(folders), "l"),
        "graph": LocalStack("graph", graph_impl.with_prompts(folders), "g"),
    }


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of prompts that `cutover prompts` has converted, as the configuration says."""
    monkeypatch.chdir(tmp_path)
    sections = "\n".join(f'[flows.{name}]\nprompts = "mine"' for name in FLOWS)
    (tmp_path / "cutover.toml").write_text(f"{sections}\n[prompts]\ntrim_blocks = true\n", "utf-8")
    written(tmp_path / "mine", PROMPTS)
    result = CliRunner().invoke(app, ["prompts", "convert", "mine", "-o", "mine", "--json"])
    assert result.exit_code == 0, result.output
    proofs = [prompt["proof"] for prompt in json.loads(result.stdout)["prompts"]]
    assert len(proofs) == 8
    assert all(proof["values"] for proof in proofs)
    return tmp_path / "mine"


async def asked(team: Path, scene: Scene, first: str, second: str) -> tuple[Message, ...]:
    """Run a request on both stacks; returns what the model was asked first."""
    played: Played = await same_on_both(scene, first, second, stacks_on(team))
    assert played.ended[0] == "completed"
    return played.asked[0].messages


@pytest.mark.slow
@pytest.mark.virtual
@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_both_stacks_ask_the_model_alike_with_prompts_of_a_folder(
    team: Path, first: str, second: str
) -> None:
    """Roles stand around the history; what no request passes is written as nothing."""
    earlier = Turn(message_id="0", role="user", content="earlier", chat_id="s")
    body = ChatRequest(message_id="m", content="hi", chat_id="s")
    assert await asked(team, Case(body, answers=(OK,), turns=(earlier,)), first, second) == (
        SystemMessage('{"today": "2026-01-01"}  {literal}\n'),
        UserMessage("earlier"),
        UserMessage("hi"),
    )
    system, *rest = await asked(team, Visit(turn("hi"), turns=(earlier,)), first, second)
    assert isinstance(system, SystemMessage)
    assert system.content.startswith("Feeling neutral.\n此前共有 1 条消息")
    assert rest == [
        UserMessage("an example"),
        AssistantMessage("its answer {x}"),
        UserMessage("earlier"),
        SystemMessage("Mind （无）\n"),
        UserMessage("hi"),
    ]
    talk = Talk(body=talk_body("hi"), check=NOT_NEEDED)
    checked = await same_on_both(talk, first, second, stacks_on(team))
    assert [call.messages for call in checked.asked] == [
        (SystemMessage("需要检索 or 不需要检索\n"), UserMessage("an example"), UserMessage("hi")),
        (SystemMessage("你是一个有用的助手。{literal}"), UserMessage("hi")),
    ]
    system, *rest = await asked(team, shift("hi", turns=(earlier,)), first, second)
    assert str(system.content).startswith("Instruct: - system.disk")
    assert rest == [UserMessage("earlier"), UserMessage("hi")]
    pictured = await same_on_both(Visit(image("analyze_only")), first, second, stacks_on(team))
    assert pictured.asked[0].messages[0] == SystemMessage("Read. Nothing is NO_TEXT.\n\n")
    said = Saying(body=SessionRequest(message="hi"), begins="s", answers=(OK,))
    assert await asked(team, said, first, second) == (
        SystemMessage("你是一个有用的助手。"),
        AssistantMessage("Hello!\n"),
        UserMessage("hi"),
    )


@pytest.mark.slow
def test_chats_are_ordered_by_number_and_rendered_alike(team: Path) -> None:
    """Ten comes after nine."""
    expected = ChatPrompt((SystemMessage('Write {"memories":[]}'), UserMessage("then\n")))
    for templates, end in ((legacy.templates, "j2"), (graph_impl.templates, "md")):
        assert templates.read_prompt(f"companion_extraction.{end}", team, "")({}) == expected


def test_a_missing_prompt_is_the_built_in_one_and_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each flow, on both stacks; one that is there is read without a word."""
    written(tmp_path, {"session_system.j2": "mine", "session_system.md": "mine"})
    with caplog.at_level(logging.WARNING):
        stacks_on(tmp_path)
    pictures = {("companion", "vision"), ("companion", "extraction")}
    texts = {("ops", "system"), ("pipeline", "memory_check"), ("pipeline", "system")}
    missing = {("chat", "system"), ("companion", "system"), *pictures, *texts}
    assert sorted(record.getMessage() for record in caplog.records) == sorted(
        f"prompt '{flow}_{name}.{end}' is missing in {tmp_path}: the built-in default is used"
        for flow, name in missing
        for end in ("j2", "md")
    )


BAD = [
    ("chat_system.j2", "{% if %}"),
    ("chat_system.j2", b"\xff"),
    ("chat_system.chat/1.system.j2", "{% if %}"),
    ("chat_system.chat/1.tool.j2", "x"),
    ("chat_system.chat/notes", "x"),
    ("chat_system.chat/1.history.placeholder", ""),
]
BAD_IN_GRAPH = [
    ("chat_system.md", "{"),
    ("chat_system.md", b"\xff"),
    ("chat_system.chat.json", "{"),
    ("chat_system.chat.json", "[]"),
    ("chat_system.chat.json", '[{"role":"tool","content":"x"}]'),
    ("chat_system.chat.json", '[{"content":"x"}]'),
    ("chat_system.chat.json", '[{"role":"system","content":"{"}]'),
]


@pytest.mark.parametrize(
    ("stack", "name", "content"),
    [
        *(("legacy", *one) for one in BAD),
        *(("graph", *one) for one in BAD_IN_GRAPH),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused_with_its_file(
    tmp_path: Path, stack: str, name: str, content: str | bytes
) -> None:
    """At the start, not at the first request."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    module = legacy if stack == "legacy" else graph_impl
    with pytest.raises(PromptRefused, match="chat_system"):
        module.with_prompts({"chat": tmp_path})


def test_a_prompt_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """As a text and as a chat: which one is meant cannot be known. So is a second history."""
    for module, files in (
        (legacy, {"chat_system.j2": "x", "chat_system.chat/1.system.j2": "x"}),
        (graph_impl, {"chat_system.md": "x", "chat_system.chat.json": "[]"}),
    ):
        folder = written(tmp_path / module.__name__, files)
        with pytest.raises(PromptRefused, match="leave one"):
            module.with_prompts({"chat": folder})
    histories = {f"chat_system.chat/{n}.h.placeholder": "" for n in (1, 2)}
    folder = written(tmp_path / "two", {**histories, "chat_system.chat/3.system.j2": ""})
    with pytest.raises(PromptRefused, match="one history"):
        legacy.with_prompts({"chat": folder})
    same = {"chat_system.chat/1.user.j2": "", "chat_system.chat/1.system.j2": ""}
    with pytest.raises(PromptRefused, match="number 1"):
        legacy.with_prompts({"chat": written(tmp_path / "same", same)})


@pytest.mark.parametrize("name", ["1.tool.j2", "x.system.j2", "1.system", "system.j2", ""])
def test_other_names_are_no_part_of_a_chat(name: str) -> None:
    """A number, a known role, an extension."""
    assert chat_file(name) is None
