"""The page on flows: every flow, every path, every event, every refusal of a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from contract.flow import FlowSpec
from contract.flows import SPECS
from contract.flows.chat import ChatRequest
from contract.flows.companion import ContinueRequest, ImageTurn, MessageTurn, RespondRequest
from contract.wire.sse import SseDecoder
from graph_impl import describe
from router.resume import pauses
from rules.emotion import feel
from tests.rules.test_images import REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "flows.md").read_text("utf-8")


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_every_flow_stands_there_with_its_paths_and_events(spec: FlowSpec) -> None:
    """In one row of the table."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{spec.name}`"))
    for path in spec.requests:
        assert path in row
    for beside in (spec.pausing.respond, spec.pausing.resume) if spec.pausing else ():
        assert beside is None or beside.path in row
    for event in get_args(spec.events):
        assert str(event.__struct_config__.tag) in row


@pytest.mark.parametrize("flow", SPECS)
def test_the_diagrams_are_those_of_the_graphs(flow: str) -> None:
    """Each as `cutover graph` prints it."""
    drawn = [block.strip() for block in re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)]
    diagrams = describe(flow).values()
    assert diagrams
    for diagram in diagrams:
        assert diagram.strip() in drawn


def test_every_field_of_a_chat_and_action_on_a_picture_is_named() -> None:
    """A client's author starts here."""
    (table,) = re.findall(r"\| field \|.*?\n\n", PAGE, re.DOTALL)
    for field in ChatRequest.__struct_fields__:
        assert f"`{field}`" in table
    for action in get_args(get_type_hints(ImageTurn)["action"]):
        assert f'`"action":"{action}"`' in PAGE


@pytest.mark.parametrize("body", [MessageTurn, ImageTurn, RespondRequest, ContinueRequest])
def test_every_field_of_a_companions_requests_is_named(body: type[msgspec.Struct]) -> None:
    """All of a request's in one place; those it can do without bear a question mark."""
    fields = msgspec.structs.fields(body)
    written = "".join(
        rf',?"{it.name}"{"" if it.required else "[?]"}(?::"[^,}}]*)?' for it in fields
    )
    assert re.search(rf"`{{{written.removeprefix(',?')}}}`", PAGE), written


def test_every_refusal_of_an_answer_and_of_going_on_is_named() -> None:
    """With its status; the first that is met is that there is no answer yet."""
    refusals = re.findall(r'\((\d+), "(\w+)"', Path(pauses.__file__).read_text("utf-8"))
    assert len(refusals) > 6
    for status, code in refusals:
        assert re.search(rf"\b{status}\s+`{code}`", PAGE), code


def test_every_refusal_of_a_picture_is_named() -> None:
    """With its status."""
    for _, status, code in REFUSED:
        assert any(f"{status} " in line and f"`{code}`" in line for line in PAGE.splitlines())


def test_the_example_is_what_comes() -> None:
    """The mood of its message, byte for byte."""
    mood = feel("今天很开心！")
    frame = SPECS["companion"].encode(mood).decode()
    assert frame in PAGE
    assert SseDecoder().feed(frame.encode())[0].event == "emotion"
