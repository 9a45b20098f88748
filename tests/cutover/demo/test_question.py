"""The demonstration's question: filled in whatever it asks, and told when it did not go over."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from contract.flows.companion import COMPANION, CompanionDone, CompanionError, CompanionText, Hitl
from contract.human import Form, FormField, HumanAnswer, check_answer
from cutover.demo import summary
from cutover.demo.client import ANSWER, AnsweredQuestion, DemoStream, filled
from cutover.demo.faulty_stack import FLOWS
from cutover.demo.story import DemoOutcome, configuration
from cutover.flows import SPECS
from graph_impl import FLOWS as GRAPH
from router.config.loader import parse_settings

if TYPE_CHECKING:
    from pathlib import Path

    from contract.flow import Event

FORM = Form("Which?", (FormField("a", "A", "text", required=True),))
QUESTION = Hitl("h", "s", "question", FORM)
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
