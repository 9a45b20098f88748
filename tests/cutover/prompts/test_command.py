"""`cutover prompts` as it is typed: what it says, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cutover.cli import app
from cutover.cli.prompts import convert_checked
from cutover.prompts.case import Counterexample, Proof
from cutover.prompts.conversion import checked
from cutover.prompts.telling import tell
from router.config import PromptSettings


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command, without proofs; returns exit status and everything it said."""
    bare = [*map(str, arguments), *(["--no-prove"] if arguments[0] == "convert" else [])]
    result = CliRunner().invoke(app, ["prompts", *bare])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of two prompts, one of which stays."""
    old = tmp_path / "old"
    (old / "deep").mkdir(parents=True)
    (old / "deep" / "hello.j2").write_bytes(b'{"name": "{{ name }}"}\n\n')
    (old / "loop.j2").write_bytes(b"a\n{% for m in messages %}{{ m.role }}{% endfor %}")
    return old


def test_check_says_what_converts_and_what_stays(folder: Path) -> None:
    """With file, line, reason and what to do; status 1."""
    status, said = run("check", folder)
    assert status == 1
    assert "converts deep/hello.j2 → deep/hello.md" in said
    assert "loop.j2:2: a loop depends on 'messages': join the lines in Python" in said
    assert "loop.j2:2: reads the attribute 'role'" in said


def test_check_says_it_as_json(folder: Path) -> None:
    """One document, for machines."""
    status, said = run("check", folder, "--json")
    report = json.loads(said)
    assert (status, report["v"]) == (1, 1)
    labels = {prompt["name"]: prompt["label"] for prompt in report["prompts"]}
    assert labels == {"deep/hello.j2": "converts", "loop.j2": "stays"}


def test_convert_writes_what_converts(folder: Path, tmp_path: Path) -> None:
    """Braces doubled, one newline less as Jinja2 has it, mode kept; nothing else is left."""
    (folder / "deep" / "hello.j2").chmod(0o640)
    status, _ = run("convert", folder, "-o", tmp_path / "new")
    made = tmp_path / "new" / "deep" / "hello.md"
    assert status == 1
    assert made.read_bytes() == b'{{"name": "{name}"}}\n'
    assert made.stat().st_mode & 0o777 == 0o640
    names = sorted(path.name for path in (tmp_path / "new").rglob("*") if path.is_file())
    assert names == ["hello.md", "prompts.map.json"]


def test_converting_twice_changes_nothing(folder: Path, tmp_path: Path) -> None:
    """The second time all is unchanged, and not refused."""
    (folder / "loop.j2").unlink()
    assert run("convert", folder, "-o", tmp_path / "new")[0] == 0
    status, said = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "(unchanged)" in said) == (0, True)


def test_nothing_is_written_over(folder: Path, tmp_path: Path) -> None:
    """Unless it is asked for; and then nothing else is written either."""
    there = tmp_path / "new" / "deep" / "hello.md"
    there.parent.mkdir(parents=True)
    there.write_text("mine", "utf-8")
    (folder / "also.j2").write_text("also", "utf-8")
    status, said = run("convert", folder, "-o", tmp_path / "new")
    assert (status, there.read_text("utf-8")) == (2, "mine")
    assert "--force" in said
    assert not (tmp_path / "new" / "also.md").exists()
    run("convert", folder, "-o", tmp_path / "new", "--force")
    assert there.read_text("utf-8") != "mine"


def test_letters_an_encoding_has_not_hold_up_nobody_else(folder: Path, tmp_path: Path) -> None:
    """The prompt that writes them stays, and says so; the others and the map are written."""
    (folder / "odd.j2").write_text("a\n{{ '\\ud800' }}", "utf-8")
    status, said = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "odd.j2:2: it writes what utf-8 has no letters for" in said) == (1, True)
    assert (tmp_path / "new" / "deep" / "hello.md").is_file()
    _, said = run("check", folder, "--set", "encoding=ascii")
    assert "odd.j2:2: it writes what ascii has no letters for" in said


def test_a_file_name_that_is_no_text_is_refused(folder: Path, tmp_path: Path) -> None:
    """Reports and maps could not name it; status 2."""
    try:
        (folder / "\udcff.j2").write_text("x", "utf-8")
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    status, said = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "its name is no UTF-8" in said) == (2, True)


@pytest.mark.parametrize("out", [".", "out"])
def test_templates_are_never_written_over(folder: Path, out: str) -> None:
    """Nor are others put beside them that would be converted next time, `--force` or not."""
    before = (folder / "deep" / "hello.j2").read_bytes()
    status, said = run("convert", folder, "-o", folder / out, "--set", "suffix=.j2", "--force")
    assert (status, "it would be a template itself" in said) == (2, True)
    assert (folder / "deep" / "hello.j2").read_bytes() == before
    assert run("convert", folder, "-o", folder / out)[0] == 1


def test_what_is_in_the_way_is_seen_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    """A file where a folder is due, a folder where a file is, a link that leads nowhere."""
    (folder / "also.j2").write_text("also", "utf-8")
    new = tmp_path / "new"
    new.mkdir()
    (new / "deep").write_text("mine", "utf-8")
    status, said = run("convert", folder, "-o", new, "--force")
    assert (status, "no folder" in said, (new / "also.md").exists()) == (2, True, False)
    (new / "deep").unlink()
    (new / "deep" / "hello.md").mkdir(parents=True)
    status, said = run("convert", folder, "-o", new, "--force")
    assert (status, "a folder" in said, (new / "also.md").exists()) == (2, True, False)
    (new / "deep" / "hello.md").rmdir()
    (new / "also.md").symlink_to(tmp_path / "nowhere")
    assert run("convert", folder, "-o", new)[0] == 2
    assert (new / "also.md").is_symlink()


def test_settings_come_from_the_file_and_the_command_line(folder: Path, tmp_path: Path) -> None:
    """What is said last holds."""
    config = tmp_path / "cutover.toml"
    config.write_text('[prompts]\nkeep_trailing_newline = true\nsuffix = ".txt"\n', "utf-8")
    out = tmp_path / "new"
    run("convert", folder, "-o", out, "--config", config, "--set", "suffix=.prompt")
    assert (out / "deep" / "hello.prompt").read_bytes().endswith(b"\n\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--set", "trim_block=true"), "did you mean 'trim_blocks'?"),
        (("--set", "trim_blocks"), "KEY=VALUE is due"),
        (("--set", "filters.x=nowhere:f"), "ModuleNotFoundError"),
        (("--set", "undefined=json:loads"), "no subclass of jinja2.Undefined"),
        (("--set", "environment=json:loads"), "TypeError"),
    ],
)
def test_settings_nobody_can_follow_are_refused(
    folder: Path, arguments: tuple[str, ...], why: str
) -> None:
    """With status 2 and what is wrong."""
    status, said = run("check", folder, *arguments)
    assert (status, why in " ".join(said.split())) == (2, True), said


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """With status 2."""
    assert run("check", tmp_path / "nowhere")[0] == 2


def test_a_chat_becomes_one_file(tmp_path: Path) -> None:
    """Messages in the order of their numbers, placeholders among them."""
    chat = tmp_path / "old" / "help.chat"
    chat.mkdir(parents=True)
    (chat / "10.user.j2").write_text("{{ question }}", "utf-8")
    (chat / "1.system.j2").write_text("You are {{ name }} 赤尾 {}", "utf-8")
    (chat / "2.history.placeholder").touch()
    assert run("convert", tmp_path / "old", "-o", tmp_path / "new")[0] == 0
    assert json.loads((tmp_path / "new" / "help.chat.json").read_text("utf-8")) == [
        {"role": "system", "content": "You are {name} 赤尾 {{}}"},
        {"role": "placeholder", "content": "{history}"},
        {"role": "user", "content": "{question}"},
    ]


def test_a_chat_laid_out_otherwise_is_refused(tmp_path: Path) -> None:
    """A role nobody knows, or a number twice."""
    chat = tmp_path / "help.chat"
    chat.mkdir()
    (chat / "1.boss.j2").touch()
    assert "roles are system" in run("check", tmp_path)[1].replace("\n", " ")
    (chat / "1.boss.j2").rename(chat / "1.user.j2")
    (chat / "01.system.j2").touch()
    assert "number 1" in run("check", tmp_path)[1].replace("\n", " ")


def test_a_prompt_that_differs_is_not_written(folder: Path, tmp_path: Path) -> None:
    """The others are; the report shows values and what both ways gave."""
    (folder / "also.j2").write_text("also", "utf-8")
    found = checked(folder, PromptSettings(), lambda _: None)
    example = Counterexample("also.j2", {"a": "''"}, "'x'", "'y'")
    proofs = {"deep/hello.j2": Proof(66), "also.j2": Proof(3, example)}
    report = convert_checked(found, tmp_path / "new", proofs, force=False)
    fates = {entry.name: entry.fate for entry in report.prompts}
    assert fates == {
        "also.j2": "not written",
        "deep/hello.j2": "written",
        "loop.j2": "not written",
    }
    assert not (tmp_path / "new" / "also.md").exists()
    console = Console(record=True, width=100)
    tell(report, console)
    said = console.export_text()
    assert "also.j2 differs for a = ''" in said
    assert "2 rendered both ways, on 69 drawings of values" in said


@pytest.mark.slow
def test_the_size_of_the_proof_is_in_the_report(folder: Path, tmp_path: Path) -> None:
    """Converting proves; so does checking, where it is asked."""
    arguments = ["prompts", "convert", str(folder), "-o", str(tmp_path / "new"), "--json"]
    report = json.loads(CliRunner().invoke(app, arguments).output)
    proofs = {prompt["name"]: prompt["proof"] for prompt in report["prompts"]}
    assert proofs["loop.j2"] is None
    assert proofs["deep/hello.j2"]["values"] > 50
    assert proofs["deep/hello.j2"]["counterexample"] is None
