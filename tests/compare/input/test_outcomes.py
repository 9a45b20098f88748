"""Captures become outcomes: served runs alone, each exchange once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from compare.input.damage import Damage
from compare.input.outcomes import read_outcomes
from compare.input.selection import EVERYTHING, Selection
from contract.flows.chat import CHAT
from contract.records import VERSION, FeedbackRecord, RunRecord, Score, encode_run
from evidence.outcomes import ExchangeOutcome
from tests.support.records import a_run

FLOWS = {"chat": CHAT}


def written(folder: Path, *runs: RunRecord, name: str = "a") -> Path:
    """Write runs as a segment."""
    place = folder / "flow=chat" / "date=2026-11-20"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.jsonl").write_bytes(b"".join(map(encode_run, runs)))
    return folder


def outcomes(folder: Path, selection: Selection = EVERYTHING) -> list[ExchangeOutcome]:
    """Read the outcomes; there is no damage."""
    found = list(read_outcomes(str(folder), FLOWS, selection))
    assert not [one for one in found if isinstance(one, Damage)], found
    return [one for one in found if isinstance(one, ExchangeOutcome)]


def scored(exchange: str, score: Score, at: int) -> bytes:
    """Write a line of feedback."""
    return (
        msgspec.json.encode(FeedbackRecord(v=VERSION, exchange=exchange, score=score, at=at))
        + b"\n"
    )


def test_runs_of_an_exchange_are_one_outcome_whatever_shadows_stand_between(tmp_path: Path) -> None:
    """A takeover has two served runs; the shadow of another exchange may be written beside them."""
    first = a_run("a", assigned="graph", stack="graph", outcome="failed")
    second = a_run("a", assigned="graph", role="fallback")
    shadow = a_run("b", role="shadow", stack="graph")
    written(tmp_path, first, shadow, second, a_run("b"), a_run("c", flow="unknown"))
    assert [(one.exchange, one.fallback) for one in outcomes(tmp_path)] == [
        ("a", "fallback"),
        ("b", ""),
    ]


def test_the_last_score_counts_wherever_it_stands(tmp_path: Path) -> None:
    """Feedback is in segments of its own."""
    written(tmp_path, a_run("a"), a_run("b"))
    place = tmp_path / "feedback" / "date=2026-11-20"
    place.mkdir(parents=True)
    (place / "2.jsonl").write_bytes(scored("a", 1, 20) + scored("z", 1, 1))
    (place / "3.jsonl").write_bytes(scored("a", -1, 10))
    assert [(one.exchange, one.feedback) for one in outcomes(tmp_path)] == [("a", 1), ("b", None)]


def test_an_exchange_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    """A copied segment is damage of the harmless kind."""
    written(tmp_path, a_run("a"))
    written(tmp_path, a_run("a"), name="copy")
    found = list(read_outcomes(str(tmp_path), FLOWS))
    assert [type(one) for one in found] == [ExchangeOutcome, Damage]
    assert isinstance(found[1], Damage)
    assert found[1].kind == "duplicate"


def test_lines_that_are_no_runs_are_damage(tmp_path: Path) -> None:
    """Of exchanges and of feedback."""
    folder = written(tmp_path, a_run("a"))
    with next(folder.rglob("a.jsonl")).open("ab") as segment:
        segment.write(b'{"no": "run"}\n')
    (folder / "feedback" / "date=2026-11-20").mkdir(parents=True)
    (folder / "feedback" / "date=2026-11-20" / "f.jsonl").write_bytes(b"[]\n")
    found = list(read_outcomes(str(folder), FLOWS))
    assert [one.kind for one in found if isinstance(one, Damage)] == ["feedback", "broken"]
    assert [one.exchange for one in found if isinstance(one, ExchangeOutcome)] == ["a"]


def test_a_selection_is_of_what_began_in_it(tmp_path: Path) -> None:
    """Since and until, as everywhere."""
    written(tmp_path, a_run("a", began=5), a_run("b", began=15))
    assert [one.exchange for one in outcomes(tmp_path, Selection(since=10))] == ["b"]
