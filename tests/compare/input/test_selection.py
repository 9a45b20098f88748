"""Selections: which exchanges of captures are compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.captures import Question, compare_captures
from compare.input.selection import (
    MomentRefused,
    Selection,
    SpanRefused,
    moment,
    moment_of,
    selection_of,
)
from compare.report import markdown, page, report_of
from compare.verdict import verdict_on
from contract.flows import SPECS
from contract.records import RunRecord
from cutover.selftest.exchanges import BEGAN, Script, batch, exchange, store

NOW = 1_795_000_000_000_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND


def under(config: str, number: int, graph: Script | None = None) -> tuple[RunRecord, ...]:
    """Return an exchange of a second, recorded under a version of the configuration."""
    runs = exchange(graph=graph, number=number)
    return tuple(msgspec.structs.replace(run, config=config) for run in runs)


def captured(folder: Path) -> str:
    """Store eight exchanges, of which the last four, under another configuration, differ."""
    runs = [under("aa", n) for n in range(4)] + [
        under("bb", n, Script(system="冷")) for n in range(4, 8)
    ]
    store(folder, batch(*runs[:5]), name="a.jsonl.zst")
    store(folder, batch(*runs[3:]), name="b.jsonl.zst")
    return str(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - 90 * SECOND),
        ("2h", NOW - 2 * HOUR),
        ("7d", NOW - 7 * 24 * HOUR),
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T08:00:01.5+08:00", SECOND + 500_000),
        ("1970-01-01 00:00:01 UTC", SECOND),
    ],
)
def test_a_moment_is_a_duration_or_a_time_with_its_zone(text: str, expected: int) -> None:
    """Durations count back from now; times are taken as reports write them, too."""
    assert moment_of(text, NOW, "--since") == expected


@given(st.integers(0, 4_000_000_000))
def test_a_moment_is_read_as_it_is_written(seconds: int) -> None:
    """What a report shows can be given back."""
    assert moment_of(moment(seconds * SECOND), NOW, "--since") == seconds * SECOND


@pytest.mark.parametrize(
    "text", ["", "2", "h", "-2h", "2026-11-20", "2026-11-20T10:00", "now", "9x"]
)
def test_what_is_no_moment_is_refused_with_an_example(text: str) -> None:
    """A time without a zone means another moment on each machine."""
    with pytest.raises(
        MomentRefused, match=r"--until '.*' (is no time|has no zone): write 2026-11"
    ):
        moment_of(text, NOW, "--until")


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    """It would leave everything out."""
    with pytest.raises(SpanRefused, match="--until '2h' is not after --since '1h'"):
        selection_of("1h", "2h", "", NOW)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        (Selection(since=BEGAN + 3 * SECOND), range(3, 8)),
        (Selection(until=BEGAN + 3 * SECOND), range(3)),
        (Selection(BEGAN + SECOND, BEGAN + 5 * SECOND, "bb"), range(4, 5)),
        (Selection(configuration="aa"), range(4)),
    ],
)
def test_only_what_is_selected_is_compared(
    tmp_path: Path, selection: Selection, numbers: range, processes: int
) -> None:
    """The rest is left out, counted once, and no damage where it is read twice."""
    question = Question(SPECS, selection=selection)
    with ThreadPoolExecutor(2) as threads:
        executor = threads if processes > 1 else None
        tally = compare_captures(captured(tmp_path), question, None, processes, executor)
    assert (tally.exchanges, tally.left_out.exchanges) == (len(numbers), 8 - len(numbers))
    assert tally.different == sum(number >= 4 for number in numbers)
    copies = sum(number in numbers for number in (3, 4))
    assert tally.damage == ({"duplicate": copies} if copies else {})


def test_the_report_states_the_selection_and_how_much_it_leaves_out(tmp_path: Path) -> None:
    """In every format, and typed in the document."""
    question = Question(SPECS, selection=Selection(until=BEGAN + 3 * SECOND, configuration="aa"))
    report = report_of(compare_captures(captured(tmp_path), question), "captures", "ignore")
    text = f"until {moment(BEGAN + 3 * SECOND)} under configuration aa"
    assert report.selection is not None
    assert (report.selection.text, report.selection.left_out) == (text, 5)
    for written in (page(report), markdown(report)):
        assert f"only exchanges {text}: 3 of 8, 5 left out" in written
    assert report.verdict.label == "equal"


def test_an_empty_selection_names_what_there_is(tmp_path: Path) -> None:
    """It is no data, and no pass."""
    question = Question(SPECS, selection=Selection(configuration="cc"))
    verdict = verdict_on(compare_captures(captured(tmp_path), question))
    assert verdict.label == "no data"
    span = f"from {moment(BEGAN)} to {moment(BEGAN + 7 * SECOND)}"
    assert verdict.reasons[:3] == (
        "none is selected",
        "only exchanges under configuration cc: 0 of 8, 8 left out",
        f"left out: {span}, under configuration aa (4), bb (4)",
    )


def test_noise_is_measured_in_what_is_selected(tmp_path: Path) -> None:
    """Messages beside it are none of it."""
    selected = Question(SPECS, selection=Selection(configuration="aa"), noise="alone")
    found = compare_captures(captured(tmp_path), selected).noise
    everything = compare_captures(captured(tmp_path), Question(SPECS, noise="alone")).noise
    assert [one.left_out.total() for one in (found, everything)] == [4, 8]
