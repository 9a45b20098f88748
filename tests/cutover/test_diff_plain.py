"""`cutover diff --dialect` as it is typed: two files, two folders, a name or a file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from cutover.cli.diff import diff
from tests.compare.dialects.bodies import DIALECTS, PIECES, TOLD, Story

app = typer.Typer()
app.command()(diff)


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command; returns exit status and everything it said, on one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def files(folder: Path, name: str, graph: Story) -> tuple[Path, Path]:
    """Write one body a side."""
    (folder / "legacy.txt").write_bytes(TOLD[name](Story()))
    (folder / "graph.txt").write_bytes(TOLD[name](graph))
    return folder / "legacy.txt", folder / "graph.txt"


@pytest.mark.parametrize("name", DIALECTS)
def test_two_files_of_every_dialect(tmp_path: Path, name: str) -> None:
    """Equal: 0; another text: 1, and the summary says where."""
    again = Story(("".join(PIECES),), number=5)
    status, said = run("--dialect", name, *files(tmp_path, name, again), "-o", tmp_path / "out")
    assert (status, "the one pair is equal" in said) == (0, True)
    sides = files(tmp_path, name, Story(("否",)))
    status, said = run("--dialect", name, *sides, "-o", tmp_path / "out")
    assert status == 1
    assert "Final text differs" in said
    report = msgspec.json.decode((tmp_path / "out" / "report.json").read_bytes())
    assert [cluster["flow"] for cluster in report["clusters"]] == [name]
    assert report["captures"] == f"{sides[0]} → {sides[1]}"


def test_where_text_is_cut_counts_when_asked(tmp_path: Path) -> None:
    """As for captures."""
    sides = files(tmp_path, "openai", Story(("".join(PIECES),)))
    assert run("--dialect", "openai", *sides, "-o", tmp_path / "out")[0] == 0
    exact = run("--dialect", "openai", *sides, "-o", tmp_path / "out", "--chunking", "exact")
    assert exact[0] == 1


def test_folders_are_compared_file_by_file(tmp_path: Path) -> None:
    """What has no partner is among the reasons; no pair at all is no data."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "1.sse").write_bytes(TOLD["openai"](Story()))
    (tmp_path / "a" / "2.sse").write_bytes(b"")
    status, said = run(
        "--dialect", "openai", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out"
    )
    assert status == 0
    assert "1 exchange not compared: nothing of that id on the side of graph" in said
    (tmp_path / "b" / "1.sse").unlink()
    status, said = run(
        "--dialect", "openai", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out"
    )
    assert status == 3
    assert "none of 2 exchanges could be compared" in said


def test_lines_that_are_no_recording_are_told(tmp_path: Path) -> None:
    """Counted and named; the rest is compared, and the status says so."""
    row = json.dumps({"id": "x", "body": TOLD["openai"](Story()).decode()})
    (tmp_path / "a.jsonl").write_text(f"{row}\noops\n")
    place = tmp_path / "a.jsonl"
    status, said = run("--dialect", "openai", place, place, "-o", tmp_path / "out")
    assert status == 4
    assert "2 damaged files, batches or lines passed over" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dialect", "openapi", "a.sse", "b.sse"], "did you mean 'openai'?"),
        (["--dialect", "bad.toml", "a.sse", "b.sse"], "unknown key; did you mean 'framing'?"),
        (["--dialect", "openai", "a.sse"], "--dialect compares two places, legacy and graph; 1"),
        (["--dialect", "openai", "a.sse", "b.sse", "a.sse"], "3 given"),
        (["--dialect", "openai", "a.sse", "nowhere"], "there is nothing there"),
        (["--dialect", "openai", "a.sse", "bad.toml"], "a file of .sse, .ndjson, .txt, .jsonl"),
        (["--dialect", "openai", "a.sse", "folder"], "may hold several"),
        (["--dialect", "openai", "twice.jsonl", "a.sse"], "is ambiguous"),
    ],
)
def test_what_cannot_be_meant_exits_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """With a sentence that says what is due; no report is written."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.sse", "b.sse"):
        Path(name).write_bytes(b"")
    Path("folder").mkdir()
    Path("bad.toml").write_text('framming = "sse"')
    Path("twice.jsonl").write_text('{"id":1,"body":""}\n' * 2)
    status, output = run(*arguments, "-o", "out")
    assert status == 2
    assert said in output
    assert not Path("out").exists()


def test_a_report_needs_a_place(tmp_path: Path) -> None:
    """As for captures."""
    status, said = run("--dialect", "chat", *files(tmp_path, "chat", Story()))
    assert status == 2
    assert "--out DIR" in said
