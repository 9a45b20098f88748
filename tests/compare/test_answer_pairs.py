"""Answers drawn from captures: which pairs can be judged, and what is counted of the others."""

from __future__ import annotations

from pathlib import Path

import msgspec

from compare.answers import EQUAL, draw_answers, request_text
from compare.input.selection import Selection
from contract.records import OwnHistory
from tests.support.answer_pairs import answered, captured, replied
from tests.support.capture_files import BEGAN, SPECS
from tests.support.records import a_request, a_run


def test_unlike_answers_are_drawn_and_all_else_is_counted(tmp_path: Path) -> None:
    """Equal, failed and lone runs, other flows, and what is read twice."""
    other = msgspec.structs.replace(replied("other", "x"), flow="pipeline")
    folder = captured(
        tmp_path / "captures",
        [
            answered("unlike", "old", "new"),
            answered("equal", "same", "same"),
            answered("failed", "old", "new", outcome="failed"),
            answered("history", "old", "new", history=OwnHistory(own=1, other=1)),
            [replied("lone", "old")],
            [other],
            answered("unlike", "old", "new"),
        ],
    )
    drawn = draw_answers(str(folder), SPECS, 50, 0)
    [pair] = drawn.pairs
    assert (pair.exchange, pair.flow, pair.began) == ("unlike", "chat", BEGAN)
    assert (pair.control, pair.candidate) == ("old", "new")
    assert pair.request == "message_id: unlike\ncontent: Why?"
    assert drawn.offered == 1
    assert drawn.left_out == {
        EQUAL: 1,
        "a run that did not complete": 1,
        "earlier answers differ": 1,
        "one run only": 1,
        "of another flow": 1,
        "read before": 1,
    }
    assert drawn.itself == []


def test_legacy_is_paired_with_itself(tmp_path: Path) -> None:
    """With an unlike answer of its own where one was captured, else with the same one."""
    again = replied("twice", "older", role="replay")
    folder = captured(
        tmp_path / "captures",
        [(*answered("twice", "old", "new"), again), answered("once", "alone", "new")],
    )
    drawn = draw_answers(str(folder), SPECS, 1, 0, itself=5)
    texts = [(pair.exchange, pair.control, pair.candidate) for pair in drawn.itself]
    assert texts == [("twice", "old", "older"), ("once", "alone", "alone")]
    assert len(drawn.pairs) == 1


def test_what_began_earlier_is_left_out(tmp_path: Path) -> None:
    """Without a count: it was not asked for."""
    folder = captured(tmp_path / "captures", [answered("e", "old", "new")])
    drawn = draw_answers(str(folder), SPECS, 50, 0, selection=Selection(since=BEGAN + 1))
    assert (drawn.pairs, drawn.left_out) == ([], {})


def test_requests_are_lines_to_read() -> None:
    """A field a line, a message a line; empty fields are left out."""
    body = {
        "model": "m",
        "empty": "",
        "messages": [{"role": "user", "content": "Hi\nyou"}, {"role": "user", "content": [1]}, 7],
    }
    run = a_run("e", request=a_request(body))
    assert request_text([run]) == "model: m\nuser: Hi\nyou\nuser: [1]\n7"
    assert request_text([a_run("e", request=a_request([1, 2]))]) == "[1,2]"
    assert request_text([a_run("e")]) == ""
