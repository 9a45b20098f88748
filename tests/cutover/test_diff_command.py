"""`cutover diff` as it is typed: files, words, exit status."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cutover.cli import app as whole
from cutover.cli.diff import diff
from cutover.selftest.exchanges import Script, batch, exchange, store

app = typer.Typer()
app.command()(diff)


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command; returns exit status and everything it said."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_equal_captures_exit_0_and_leave_three_reports(tmp_path: Path) -> None:
    """Five hundred equal pairs are no finding."""
    store(tmp_path / "captures", *(batch(exchange(number=n)) for n in range(500)))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert status == 0
    assert "all 500 pairs are equal" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html",
        "report.json",
        "report.md",
    }


def test_differing_captures_exit_1_and_name_the_cause(tmp_path: Path) -> None:
    """The summary is enough to know where to look."""
    store(tmp_path / "captures", batch(exchange(graph=Script(temperature=0.1))))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert status == 1
    [cause] = (line for line in said.splitlines() if "Model parameter differs" in line)
    assert " chat " in cause  # the same may differ in another flow, under the same id


def test_only_the_wanted_formats_are_written(tmp_path: Path) -> None:
    """`--format` may be repeated."""
    store(tmp_path / "captures", batch(exchange()))
    run(tmp_path / "captures", "-o", tmp_path / "out", "--format", "md", "--format", "json")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", "report.md"}


def test_a_report_that_is_being_read_stays_whole(tmp_path: Path) -> None:
    """Who opened the old one reads it to its end while a new one takes its place."""
    store(tmp_path / "captures", batch(exchange()))
    run(tmp_path / "captures", "-o", tmp_path / "out")
    report = tmp_path / "out" / "report.json"
    before = report.read_bytes()
    store(tmp_path / "captures", batch(exchange(graph=Script(temperature=0.1))))
    with report.open("rb") as held:
        run(tmp_path / "captures", "-o", tmp_path / "out")
        assert held.read() == before
    assert report.read_bytes() != before
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_nothing_to_compare_exits_3(tmp_path: Path) -> None:
    """No data is not a pass."""
    (tmp_path / "captures").mkdir()
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert status == 3
    assert "no exchange was found" in said


@pytest.mark.parametrize("place", ["nowhere", "nosuchscheme://somewhere"])
def test_unreadable_captures_exit_2_with_a_reason(tmp_path: Path, place: str) -> None:
    """A misspelt place is told apart from an empty one."""
    wanted = place if "://" in place else str(tmp_path / place)
    status, said = run(wanted, "-o", tmp_path / "out")
    assert status == 2
    assert "cannot read captures" in said
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_exits_2(tmp_path: Path) -> None:
    """The place for the report may be a file."""
    store(tmp_path / "captures", batch(exchange()))
    (tmp_path / "out").write_text("")
    assert run(tmp_path / "captures", "-o", tmp_path / "out")[0] == 2


def test_chunking_is_asked_for(tmp_path: Path) -> None:
    """Where text is cut counts with `exact` only."""
    text = Script().text
    recut = Script(pieces=(text[:3], text[3:10], text[10:]))
    store(tmp_path / "captures", batch(exchange(graph=recut)))
    assert run(tmp_path / "captures", "-o", tmp_path / "out")[0] == 0
    assert run(tmp_path / "captures", "-o", tmp_path / "out", "--chunking", "exact")[0] == 1


def test_what_could_not_be_read_is_in_the_exit_status(tmp_path: Path) -> None:
    """An equal rest is no pass, a difference stays one, and nothing readable is a refusal."""
    whole, torn = batch(exchange()), batch(exchange(number=1))[:-20]
    cold = batch(exchange(graph=Script(system="冷"), number=2))
    for name, content, expected in (
        ("equal", (whole, torn), 4),
        ("different", (cold, torn), 1),
        ("nothing", (b"no captures at all",), 2),
    ):
        place = store(tmp_path / name, *content)
        status, said = run(place, "-o", tmp_path / f"{name}-report")
        assert status == expected, said
        assert "1 damaged file, batch or line passed over" in said


@pytest.mark.slow
def test_processes_are_asked_for(tmp_path: Path) -> None:
    """The report is the same, to the byte."""
    for number in range(3):
        store(tmp_path / "c", batch(exchange(number=number)), name=f"{number}.jsonl.zst")
    for processes in ("1", "2"):
        arguments = "-o", tmp_path / processes, "--processes", processes
        assert run(tmp_path / "c", *arguments)[0] == 0
    one, two = ((tmp_path / n / "report.json").read_bytes() for n in ("1", "2"))
    assert one == two


def test_a_prompt_that_differs_is_traced_to_its_template(tmp_path: Path) -> None:
    """By the map that checking prompts has written: file, line and variable, in every format."""
    old = tmp_path / "prompts"
    old.mkdir()
    (old / "talk.j2").write_text("{# tone #}\n{{ name }}会聊天的助手。", "utf-8")
    store(
        tmp_path / "captures",
        batch(exchange(Script(system="\n一个会聊天的助手。"), Script(system="\n会聊天的助手。"))),
    )
    command = ["prompts", "check", str(old), "--map", str(tmp_path / "map.json")]
    assert CliRunner().invoke(whole, command).exit_code == 0
    out = tmp_path / "out"
    run(tmp_path / "captures", "-o", out, "--prompts", tmp_path / "map.json")
    said = "talk.j2:2: the variable 'name'"
    assert said in (out / "report.md").read_text("utf-8")
    assert said in html.unescape((out / "report.html").read_text("utf-8"))
    found = json.loads((out / "report.json").read_text("utf-8"))
    source = found["clusters"][0]["exemplars"][0]["findings"][0]["source"]
    assert (source["file"], source["line"], source["variable"]) == ("talk.j2", 2, "name")


def test_a_map_of_prompts_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is compared: status 2."""
    store(tmp_path / "captures", batch(exchange()))
    (tmp_path / "map.json").write_text("[]", "utf-8")
    arguments = (tmp_path / "captures", "-o", tmp_path / "out", "--prompts", tmp_path / "map.json")
    status, said = run(*arguments)
    assert (status, "no map of prompts" in " ".join(said.split())) == (2, True)
