"""Outcomes in the report: by assigned stack, whichever stack served, in all its formats."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compare.captures import Question, compare_captures
from compare.input.selection import EVERYTHING, Selection
from compare.report import Report, markdown, page, report_of
from compare.report.document import encode_report
from compare.report.outcomes import OutcomeRow
from contract.flows.chat import CHAT
from contract.records import ErrorRecord, FeedbackRecord, RunRecord, encode_run
from tests.support.records import a_run

FLOWS = {"chat": CHAT}
FRAMES = ((2_000, 'data: {"step":"ACCEPT"}\n\n'), (9_000, 'data: {"step":"END"}\n\n'))


def exchange(number: int) -> tuple[RunRecord, ...]:
    """Return an exchange: every second is graph's, of these every fourth is taken over."""
    name, assigned = f"e{number}", "graph" if number % 2 else "legacy"
    if number % 8 != 1:
        return (a_run(name, stack=assigned, assigned=assigned, served=assigned, frames=FRAMES),)
    why = {"assigned": assigned, "served": "legacy", "reason": "crash", "lost_us": 1_000}
    failed = a_run(name, stack=assigned, outcome="failed", frames=FRAMES[:1], **why)
    return failed, a_run(name, role="fallback", frames=FRAMES, sent=1, **why)


def captures(folder: Path, copies: int = 1) -> Path:
    """Write forty exchanges, so many times, a refusal, and what users thought of three."""
    runs = [run for number in range(40) for run in exchange(number)]
    runs.append(a_run("r", outcome="refused", error=ErrorRecord("<b>no|`such`</b>")))
    for copy in range(copies):
        (folder / f"{copy}.jsonl").write_bytes(b"".join(map(encode_run, runs)))
    scores = [
        FeedbackRecord(v=1, exchange=f"e{number}", score=1 if number else -1, at=1)
        for number in (0, 1, 2)
    ]
    (folder / "feedback" / "date=2026-11-20").mkdir(parents=True)
    written = b"".join(msgspec.json.encode(one) + b"\n" for one in scores)
    (folder / "feedback" / "date=2026-11-20" / "f.jsonl").write_bytes(written)
    return folder


def reported(place: Path, selection: Selection = EVERYTHING, processes: int = 1) -> Report:
    """Write up captures."""
    question = Question(FLOWS, selection=selection)
    return report_of(compare_captures(str(place), question, processes=processes), "here", "tape")


def row(report: Report, by: str, stack: str) -> OutcomeRow:
    """Return the one row of a stack."""
    (found,) = [one for one in report.outcomes if (one.by, one.stack) == (by, stack)]
    return found


def test_a_takeover_counts_against_the_assigned_stack(tmp_path: Path) -> None:
    """Beside it, by who served, the same exchange is the other stack's."""
    report = reported(captures(tmp_path))
    assert [(one.by, one.stack, one.requests) for one in report.outcomes] == [
        ("assigned", "legacy", 21),
        ("assigned", "graph", 20),
        ("served", "legacy", 26),
        ("served", "graph", 15),
    ]
    graph = row(report, "assigned", "graph")
    assert (graph.fallbacks.count, graph.fallback_reasons) == (5, {"takeover: crash": 5})
    assert graph.fallbacks.low < 0.25 < graph.fallbacks.high
    assert graph.lost_us == 5_000
    assert row(report, "served", "graph").fallbacks.count == 0
    assert row(report, "assigned", "legacy").refusals.count == 1
    gaps = {one.metric: one.percentiles[0].value for one in graph.times}
    assert gaps == {"first_frame": 2_000, "longest_gap": 7_000, "last_frame": 9_000}
    assert (row(report, "assigned", "legacy").scores, graph.scores) == ({"1": 1, "-1": 1}, {"1": 1})


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_read_twice_counts_once(tmp_path: Path, processes: int) -> None:
    """However many processes read it."""
    once, twice = tmp_path / "once", tmp_path / "twice"
    once.mkdir()
    twice.mkdir()
    first = reported(captures(once))
    assert reported(captures(twice, 2), processes=processes).outcomes == first.outcomes


def test_what_is_not_selected_is_not_counted(tmp_path: Path) -> None:
    """As everywhere in the report."""
    assert reported(captures(tmp_path), Selection(since=1)).outcomes == ()


def test_every_format_shows_them_and_nothing_captured_is_markup(tmp_path: Path) -> None:
    """Codes are written by stacks."""
    report = reported(captures(tmp_path))
    html, text = page(report), markdown(report)
    assert "Outcomes by assigned stack" in html
    assert "Outcomes by assigned stack" in text
    assert "<b>no" not in html + text
    assert "| chat | assigned graph | 20 |" in text
    assert b'"fallback_reasons"' in encode_report(report)
    assert msgspec.json.decode(encode_report(report), type=Report) == report
