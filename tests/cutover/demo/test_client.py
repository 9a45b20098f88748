"""The demonstration's messages, and its question: filled in, and told when it was lost."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from contract.flows import SPECS
from contract.flows.companion import COMPANION, CompanionDone, CompanionError, CompanionText, Hitl
from contract.flows.ops import OPS, OpsDone
from contract.human import Form, FormField, HumanAnswer, check_answer
from cutover.cli import app
from cutover.demo import summary
from cutover.demo.client import (
    ANSWER,
    BUNDLED,
    TEMPORARY,
    AnsweredQuestion,
    ApprovedInstruction,
    DemoStream,
    MessagesRefused,
    filled,
    read_messages,
)
from cutover.demo.faulty_stack import FLOWS
from cutover.demo.story import DemoOutcome, configuration
from graph_impl import FLOWS as GRAPH
from router.config.loader import parse_settings

if TYPE_CHECKING:
    from pathlib import Path

    from contract.flow import Event


FORM = Form("Which?", (FormField("a", "A", "text", required=True),))
QUESTION = Hitl("h", "s", "question", FORM)
NOT_APPROVED = "the files were not deleted once that was approved, and not before"
LOST = "the question to the user was not gone on from on the other stack"


def stream(served: str, *events: Event) -> DemoStream:
    """Build an answer of graph's, or legacy's."""
    return DemoStream(served, served, b"".join(map(COMPANION.encode, events)))


PUT = stream("graph", QUESTION, CompanionDone("suspended"))
SAID = stream("graph", CompanionText("No."), CompanionDone("completed"))
WENT_ON = stream("legacy", CompanionText("We"), CompanionText("ll."), CompanionDone("completed"))
BROKE = stream("legacy", CompanionError("resume_mismatch"), CompanionDone("failed"))


@pytest.mark.parametrize(
    ("asked", "simulated", "lost"),
    [
        (AnsweredQuestion(PUT, {"a": ANSWER}, WENT_ON), True, False),
        (AnsweredQuestion(PUT, {"a": ANSWER}, BROKE), True, True),
        (AnsweredQuestion(PUT, {"a": ANSWER}, DemoStream("", "", b"")), False, True),
        (
            AnsweredQuestion(PUT, {"a": ANSWER}, stream("graph", CompanionDone("completed"))),
            False,
            True,
        ),
        (AnsweredQuestion(SAID, {}), True, True),
        (AnsweredQuestion(SAID, {}), False, False),
        (None, True, True),
    ],
)
def test_a_question_that_was_not_gone_on_from_is_a_failure(
    asked: AnsweredQuestion | None, *, simulated: bool, lost: bool
) -> None:
    """Except where a real model asked nothing: it need not."""
    outcome = DemoOutcome(question=asked, simulated=simulated)
    assert (LOST in summary.failures(outcome)) == lost


@pytest.mark.parametrize(
    ("kept", "left", "unmet"),
    [
        (TEMPORARY, ("notes.txt",), False),
        (("notes.txt",), ("notes.txt",), True),
        (TEMPORARY, TEMPORARY, True),
        (TEMPORARY, (), True),
    ],
)
def test_an_instruction_that_did_not_wait_for_its_approval_is_a_failure(
    kept: tuple[str, ...], left: tuple[str, ...], *, unmet: bool
) -> None:
    """Nor may it do more, or nothing, once it was approved."""
    asked, decided = (
        DemoStream("graph", "graph", OPS.encode(OpsDone(status)))
        for status in ("approval_required", "completed")
    )
    approval = ApprovedInstruction(asked, decided, tuple(sorted(kept)), left)
    assert (NOT_APPROVED in summary.failures(DemoOutcome(approval=approval))) == unmet


@pytest.mark.parametrize(
    "field",
    [
        FormField("a", "A", "text", required=True),
        FormField("a", "A", "number", required=True),
        FormField("a", "A", "boolean", required=True),
        FormField("a", "A", "choice", required=True, options=("x", "y")),
        FormField("a", "A", "list", required=True, options=("x", "y")),
        FormField("a", "A", "list", required=True),
    ],
)
def test_whatever_is_asked_is_answered(field: FormField) -> None:
    """A real model makes forms of its own."""
    form = Form("?", (field,))
    assert check_answer(form, HumanAnswer("edit", filled(form))) == ()


def test_what_was_asked_and_what_came_is_told(tmp_path: Path) -> None:
    """The pieces of a text as one line, and in between what happened to the flow."""
    text = StringIO()
    console = Console(file=text, width=120)
    summary.print_summary(
        DemoOutcome(question=AnsweredQuestion(PUT, {"a": "x"}, WENT_ON)), tmp_path, console
    )
    lines = [line.strip() for line in text.getvalue().splitlines()]
    told = lines.index(': rolled back, answered {"a":"x"}, gone on by legacy')
    assert lines[told + 1 : told + 3] == [
        'event: text  data: {"content":"Well."}',
        'event: done  data: {"status":"completed"}',
    ]
    assert any('"form":{"title":"Which?"' in line for line in lines[:told])


def test_shadows_are_counted_over_all_flows(tmp_path: Path) -> None:
    """A line each way they ended, however many flows ended so."""
    line = {"state": "compared", "reason": "equal", "count": 2}
    lines = [{**line, "flow": "chat"}, {**line, "flow": "companion"}]
    text = StringIO()
    books = {"ledger": {"lines": lines}}
    summary.print_summary(DemoOutcome(readiness=books), tmp_path, Console(file=text, width=120))
    (told,) = (row for row in text.getvalue().splitlines() if "compared: equal" in row)
    assert "4" in told


def test_only_chats_crash() -> None:
    """Other flows of a demonstration that is left running answer too."""
    assert {name for name in FLOWS if FLOWS[name] is not GRAPH[name]} == {"chat"}


def test_the_companion_begins_on_graph(tmp_path: Path) -> None:
    """Until it is rolled back."""
    flow = parse_settings(configuration(tmp_path, None), "cutover.toml", SPECS).flows["companion"]
    assert (flow.stage, float(flow.langgraph_percent)) == ("full", 100)


def written(folder: Path, content: bytes) -> Path:
    """Write a file of messages."""
    path = folder / "messages.jsonl"
    path.write_bytes(content)
    return path


def test_the_bundled_messages_are_good() -> None:
    """Every one has an id of its own."""
    messages = read_messages(BUNDLED)
    assert len(messages) >= 50
    assert len({message["message_id"] for message in messages}) == len(messages)


def test_shared_questions_are_read_as_they_are(tmp_path: Path, shared_data: Path) -> None:
    """A row of turns is one conversation, in its order."""
    path = shared_data / "vicuna_questions.jsonl"
    if not path.exists():
        pytest.skip("no vicuna_questions.jsonl in ../shared/data")
    rows = path.read_bytes().split(b"\n")[:3]
    messages = read_messages(written(tmp_path, b"\n".join(rows)))
    assert [message["chat_id"] for message in messages] == ["chat-1", "chat-2", "chat-3"]
    assert "time management" in messages[0]["content"]


def test_odd_files_are_read(tmp_path: Path) -> None:
    """A BOM, lines ended by CRLF, blank lines, and line ends that are text in JSON."""
    content = '\ufeff{"content":"a\u2028b\x85c"}\r\n\r\n{"turns":["d","e"],"note":1}\r\n'
    messages = read_messages(written(tmp_path, content.encode()))
    assert [message["content"] for message in messages] == ["a\u2028b\x85c", "d", "e"]
    assert [message.get("chat_id") for message in messages] == [None, "chat-3", "chat-3"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no message"),
        (b"\n \n", "holds no message"),
        (b'{"turns":[]}', "holds no message"),
        (b"\xff\xfe", "cannot be read as UTF-8 text"),
        (b'{"content":"a"}\nnot json', "line 2 is not a JSON object"),
        (b'{"content":"a"}\n["b"]', "line 2 is not a JSON object"),
        (b'{"content":"a","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "line 1 is not a JSON"),
        (b'{"content":"\\ud800"}', "line 1 is not a JSON object"),
        (b'{"content":""}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"content":7}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"turns":["a",7]}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"content":"a","message_id":7}', "line 1 cannot be sent: Expected `str`"),
        (b'{"content":"a","user_name":"' + b"x" * 65 + b'"}', "line 1 cannot be sent"),
        (b'{"content":"a\\u0000"}', "line 1 cannot be sent"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, content: bytes, why: str) -> None:
    """Before anything is started or emptied."""
    path = written(tmp_path, content)
    with pytest.raises(MessagesRefused) as refused:
        read_messages(path)
    assert why in str(refused.value)
    assert repr(str(path)) in str(refused.value)


@pytest.mark.parametrize(
    ("mistake", "status"),
    [
        (("--messages", "absent"), 2),
        (("--seconds", "0.5"), 64),
        (("--seconds", "x"), 64),
        (("--users", "0"), 64),
    ],
)
def test_a_refused_command_leaves_the_folder_alone(
    tmp_path: Path, mistake: tuple[str, str], status: int
) -> None:
    """A mistyped option must not cost the report of yesterday."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "kept").touch()
    result = CliRunner().invoke(app, ["demo", "--out", str(out), *mistake])
    assert result.exit_code == status
    assert mistake[0] in result.output or "cannot be read" in result.output
    assert (out / "kept").exists()
