"""`cutover gate` on captures whose times, failures and ratings are drawn."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from cutover.cli import INTERNAL, USAGE
from cutover.cli.compare.gate import REFUSED
from cutover.judge.judgements import add_judged
from evidence.decision import Decision
from evidence.outcomes import ExchangeOutcome
from evidence.pages.gate import decision_schema
from evidence.preferences import JudgedPair
from tests.support.commands import run_command, run_on_one_line
from tests.support.drawn_captures import write_captures
from tests.support.drawn_outcomes import DrawnRollout

DOCS = Path(__file__).parents[3] / "docs"


def decided(folder: Path, captures: Path, *options: str) -> tuple[int, Decision]:
    """Gate captures by the default configuration; returns the exit status and the decision."""
    out = folder / "out"
    status, text = run_command("gate", captures, "--to", 75, "-o", out, *options)
    assert (out / "gate.json").exists(), text
    return status, msgspec.json.decode((out / "gate.json").read_bytes(), type=Decision)


@pytest.mark.parametrize(
    ("rollout", "status", "reason"),
    [
        (DrawnRollout(), 0, "the split is as configured"),
        (DrawnRollout(slower=1.2), 2, "P95 of time to the end"),
        (DrawnRollout(failing=0.01), 2, "another stack had to serve: legacy 0.00 %"),
        (DrawnRollout(disliked=0.3), 1, "bad ratings"),
        (DrawnRollout(requests=40), 3, "requests on a side, 500 are due"),
    ],
    ids=["equal", "slower", "failing", "disliked", "few"],
)
def test_a_rollout_gets_its_verdict(
    tmp_path: Path, rollout: DrawnRollout, status: int, reason: str
) -> None:
    """Read back from records, as the exit status says, for the reason that was drawn."""
    found, decision = decided(tmp_path, write_captures(tmp_path, rollout.outcomes()))
    assert found == status, decision.reasons
    assert any(reason in one for one in decision.reasons)


def test_a_skewed_split_cannot_tell(tmp_path: Path) -> None:
    """A tenth of graph's exchanges never reached the captures."""
    rows = DrawnRollout(slower=1.5).outcomes()
    left = [one for i, one in enumerate(rows) if one.assigned == "legacy" or i % 5]
    status, decision = decided(tmp_path, write_captures(tmp_path, left))
    assert status == 3
    assert "the split is skewed" in decision.reasons[0]


def test_an_unwaived_difference_holds_until_it_is_waived(tmp_path: Path) -> None:
    """Graph says something else in every shadow."""
    captures = write_captures(tmp_path, DrawnRollout(requests=200).outcomes(), shadow="hello")
    status, decision = decided(tmp_path, captures)
    assert (status, decision.verdict) == (1, "hold")
    assert "not waived" in decision.reasons[0]
    assert (tmp_path / "out" / "report.html").exists()


def test_what_a_fallback_saved_is_counted_and_is_no_difference(tmp_path: Path) -> None:
    """A few failures, within the margin: no cause holds the promotion."""
    rollout = DrawnRollout(requests=6_000, failing=0.0005)
    status, decision = decided(tmp_path, write_captures(tmp_path, rollout.outcomes()))
    assert status == 0, decision.reasons
    (failures,) = (one for one in decision.checks if one.name == "failures")
    assert failures.figures[1].value


def test_an_empty_folder_cannot_tell(tmp_path: Path) -> None:
    """No data is a verdict with reasons, on the page and in Markdown, too."""
    (tmp_path / "captures").mkdir()
    status, decision = decided(tmp_path, tmp_path / "captures")
    assert (status, decision.compared) == (3, 0)
    for name in ("gate.html", "gate.md"):
        assert "Cannot tell" in (tmp_path / "out" / name).read_text("utf-8")


def test_every_figure_leads_to_its_rows(tmp_path: Path) -> None:
    """On the page by a link, in JSON by ids and a query of the rows that are written beside it."""
    captures = write_captures(tmp_path, DrawnRollout(failing=0.01).outcomes())
    _, decision = decided(tmp_path, captures)
    page = (tmp_path / "out" / "gate.html").read_text("utf-8")
    rows = msgspec.json.Decoder(ExchangeOutcome).decode_lines(
        (tmp_path / "out" / "rows.jsonl").read_bytes()
    )
    failed = {one.exchange for one in rows if one.fallback}
    for check in decision.checks:
        assert f'href="#rows-{check.name}"' in page
        assert f'id="rows-{check.name}"' in page
    (failures,) = (one for one in decision.checks if one.name == "failures")
    assert failures.figures[1].exchanges
    assert set(failures.figures[1].exchanges) <= failed
    assert len(rows) == 4_000


def test_what_was_asked_wrongly_is_no_verdict(tmp_path: Path) -> None:
    """Exit 4: none of the verdicts' statuses."""
    for arguments in ((tmp_path / "nowhere",), (tmp_path, "--flow", "chta")):
        status, text = run_on_one_line("gate", *arguments)
        assert status == 4
        assert "error:" in text


def test_a_report_among_the_captures_is_refused(tmp_path: Path) -> None:
    """The next gate would take its rows for damaged captures."""
    captures = write_captures(tmp_path, DrawnRollout(requests=10).outcomes())
    for out in (captures, captures / "gate" / "today"):
        status, text = run_on_one_line("gate", captures, "-o", out)
        assert status == 4
        assert "rows.jsonl would be read as one" in text
    assert not (captures / "gate").exists()


@pytest.mark.parametrize("option", [("--too", 25), ("--to", "much"), ("--to", 200), ("--flow",)])
def test_a_misspelt_command_line_is_no_verdict(tmp_path: Path, option: tuple[object, ...]) -> None:
    """A script that rolls back on 2 does not because of a typing error."""
    assert run_command("gate", tmp_path, *option)[0] == USAGE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ZeroDivisionError("a fault of ours"), INTERNAL),
        (EOFError("Typer makes 1 of it"), INTERNAL),
        (BrokenPipeError(errno.EPIPE, "of this, too"), INTERNAL),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_or_an_interrupt_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: int
) -> None:
    """While the verdict is printed, where no refusal is made of an error."""

    def fail() -> NoReturn:
        raise error

    monkeypatch.setattr("cutover.cli.compare.gate.tables", fail)
    status, text = run_command("gate", tmp_path)
    assert status == expected
    assert (type(error).__name__ in text) == (expected == INTERNAL)


def test_judgements_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    """The verdict follows them; a file that is not there is no absence of judgements."""
    rows = DrawnRollout().outcomes()
    captures = write_captures(tmp_path, rows, shadow="hi")
    file = tmp_path / "elsewhere" / "judged.json"
    assert run_command("gate", captures, "--quality", file)[0] == REFUSED
    add_judged(
        file,
        [
            JudgedPair(
                exchange=one.exchange, flow="chat", began=1, judge="person", preferred="control"
            )
            for one in rows[:30]
        ],
    )
    assert "quality" not in [one.name for one in decided(tmp_path, captures)[1].checks]
    _, decision = decided(tmp_path, captures, "--quality", str(file))
    (quality,) = [one for one in decision.checks if one.name == "quality"]
    assert (quality.verdict, quality.n, quality.rows) == ("hold", 30, str(file))


def test_the_published_schema_is_the_code() -> None:
    """`docs/gate.schema.json` is generated."""
    assert (DOCS / "gate.schema.json").read_bytes() == decision_schema()
