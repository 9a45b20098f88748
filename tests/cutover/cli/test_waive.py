"""`cutover waive` as it is typed: what it writes, and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from compare.waivers import Waiver, read_waivers
from cutover.cli import USAGE
from cutover.cli.compare.waive import WaiverPast, add_waiver
from tests.support.commands import run_command

ID = "0123456789ab"
WORDS = ("--owner", "Ann", "--reason", "agreed", "--until", "9999-12-31")
WAIVER = Waiver("Ann", "agreed", date(9999, 12, 31))


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run `cutover waive`; returns its exit status and its output."""
    return run_command("waive", *arguments)


def test_a_waiver_is_written(tmp_path: Path) -> None:
    """The file is created; it holds the waiver, and nothing else is left behind."""
    file = tmp_path / "waivers.toml"
    status, said = run(ID, *WORDS, "--file", file)
    assert (status, ID in said) == (0, True)
    assert read_waivers(file) == {ID: WAIVER}
    assert list(tmp_path.iterdir()) == [file]


def test_a_waiver_may_be_for_one_flow(tmp_path: Path) -> None:
    """`--flow` restricts it."""
    file = tmp_path / "waivers.toml"
    run(ID, *WORDS, "--file", file, "--flow", "chat")
    assert read_waivers(file)[ID].flow == "chat"


def test_an_unknown_flow_is_named(tmp_path: Path) -> None:
    """It is written all the same: a team's own dialect may have that name."""
    file = tmp_path / "waivers.toml"
    status, said = run(ID, *WORDS, "--file", file, "--flow", "chta")
    assert (status, read_waivers(file)[ID].flow) == (0, "chta")
    assert "flow 'chta', which is unknown here; did you mean 'chat'?" in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("xyz", *WORDS), "no finding id"),
        ((ID, *WORDS[:4], "--until", "2020-01-01"), "past"),
        ((ID, "--owner", " ", *WORDS[2:]), "owner is empty"),
        ((ID, *WORDS[:2], "--reason", "", *WORDS[4:]), "reason is empty"),
        ((ID, *WORDS[:2], "--reason", "\udcff", *WORDS[4:]), "reason is no text"),
        ((ID, *WORDS[:4]), "--until"),
    ],
)
def test_half_a_waiver_is_refused(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    """And nothing is written."""
    status, said = run(*arguments, "--file", tmp_path / "waivers.toml")
    assert status == 2
    assert why in said
    assert list(tmp_path.iterdir()) == []


def test_a_last_day_that_is_no_day_is_refused(tmp_path: Path) -> None:
    """As a command line that cannot be read."""
    status, said = run(ID, *WORDS[:4], "--until", "soon", "--file", tmp_path / "waivers.toml")
    assert (status, list(tmp_path.iterdir())) == (USAGE, [])
    assert "--until" in said


def test_a_second_waiver_needs_replace(tmp_path: Path) -> None:
    """Without it the file stays as it is."""
    file = tmp_path / "waivers.toml"
    run(ID, *WORDS, "--file", file)
    before = file.read_bytes()
    again = (ID, "--owner", "Bo", *WORDS[2:], "--file", file)
    status, said = run(*again)
    assert (status, "--replace" in said, file.read_bytes() == before) == (2, True, True)
    assert run(*again, "--replace")[0] == 0
    assert read_waivers(file)[ID].owner == "Bo"


def test_a_broken_file_is_not_written_over(tmp_path: Path) -> None:
    """It may hold waivers."""
    file = tmp_path / "waivers.toml"
    file.write_text("[waiver")
    assert run(ID, *WORDS, "--file", file)[0] == 2
    assert file.read_text() == "[waiver"


def test_waivers_written_at_once_are_all_there(tmp_path: Path) -> None:
    """Each writer waits for the others."""
    file = tmp_path / "waivers.toml"
    ids = [f"{number:012x}" for number in range(40)]
    with ThreadPoolExecutor(8) as together:
        written = [
            together.submit(add_waiver, file, one, WAIVER, date(2026, 1, 1), replace=False)
            for one in ids
        ]
    assert [one.exception() for one in written] == [None] * len(ids)
    assert sorted(read_waivers(file)) == ids


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    """The file it leads to is written."""
    file, link = tmp_path / "shared.toml", tmp_path / "waivers.toml"
    link.symlink_to(file)
    assert run(ID, *WORDS, "--file", link)[0] == 0
    assert (link.is_symlink(), read_waivers(file)) == (True, {ID: WAIVER})


def test_today_is_the_last_day_that_can_be_chosen(tmp_path: Path) -> None:
    """Yesterday is past."""
    file = tmp_path / "waivers.toml"
    add_waiver(file, ID, WAIVER, date(9999, 12, 31), replace=False)
    late = Waiver("Ann", "agreed", date(9999, 12, 30))
    with pytest.raises(WaiverPast):
        add_waiver(file, "a" * 12, late, date(9999, 12, 31), replace=False)
