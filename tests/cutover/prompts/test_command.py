"""`cutover prompts` as it is typed: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from cutover.cli import app
from cutover.prompts.conversion import write_converted
from cutover.prompts.examination import ExaminationOrder
from cutover.prompts.judgement import DifferingValues, PromptProof
from cutover.prompts.report import print_report, report_on
from router.config.schema import PromptSettings
from tests.cutover.prompts.test_environment import examined


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command without proofs; return exit status and output."""
    bare = [*map(str, arguments), *(["--no-prove"] if arguments[0] == "convert" else [])]
    result = CliRunner().invoke(app, ["prompts", *bare])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two prompts, one of which stays."""
    old = tmp_path / "old"
    (old / "deep").mkdir(parents=True)
    (old / "deep" / "hello.j2").write_bytes(b'{"name": "{{ name }}"}\n\n')
    (old / "loop.j2").write_bytes(b"a\n{% for m in messages %}{{ m.role }}{% endfor %}")
    return old


def test_check_prints_what_converts_and_what_stays(folder: Path) -> None:
    """With file, line, reason and what to do; status 1."""
    status, printed = run("check", folder)
    assert status == 1
    assert "converts deep/hello.j2 → deep/hello.md" in printed
    assert "loop.j2:2: a loop over 'messages': join the lines in Python" in printed


def test_check_prints_json(folder: Path) -> None:
    """One document, for machines."""
    status, printed = run("check", folder, "--json")
    report = json.loads(printed)
    assert (status, report["v"]) == (1, 2)
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
    status, printed = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "(unchanged)" in printed) == (0, True)


def test_nothing_is_overwritten(folder: Path, tmp_path: Path) -> None:
    """Unless `--force` says so; a refusal writes no other file either."""
    there = tmp_path / "new" / "deep" / "hello.md"
    there.parent.mkdir(parents=True)
    there.write_text("mine", "utf-8")
    (folder / "also.j2").write_text("also", "utf-8")
    status, printed = run("convert", folder, "-o", tmp_path / "new")
    assert (status, there.read_text("utf-8")) == (2, "mine")
    assert "--force" in printed
    assert not (tmp_path / "new" / "also.md").exists()
    run("convert", folder, "-o", tmp_path / "new", "--force")
    assert there.read_text("utf-8") != "mine"


def test_letters_outside_the_encoding_keep_their_prompt_alone(folder: Path, tmp_path: Path) -> None:
    """The prompt that writes them stays, with the reason; the others and the map are written."""
    (folder / "odd.j2").write_text("a\n{{ '\\ud800' }}", "utf-8")
    status, printed = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "odd.j2:2: it writes letters that utf-8 does not have" in printed) == (1, True)
    assert (tmp_path / "new" / "deep" / "hello.md").is_file()
    _, printed = run("check", folder, "--set", "encoding=ascii")
    assert "odd.j2:2: it writes letters that ascii does not have" in printed


def test_a_file_name_that_is_not_utf8_is_refused(folder: Path, tmp_path: Path) -> None:
    """Reports and maps could not name it; status 2."""
    try:
        (folder / "\udcff.j2").write_text("x", "utf-8")
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    status, printed = run("convert", folder, "-o", tmp_path / "new")
    assert (status, "its name is not UTF-8" in printed) == (2, True)


@pytest.mark.parametrize("out", [".", "out"])
def test_templates_are_never_overwritten(folder: Path, out: str) -> None:
    """Nor are others put beside them that would be converted next time, `--force` or not."""
    before = (folder / "deep" / "hello.j2").read_bytes()
    status, printed = run("convert", folder, "-o", folder / out, "--set", "suffix=.j2", "--force")
    assert (status, "it would be a template itself" in printed) == (2, True)
    assert (folder / "deep" / "hello.j2").read_bytes() == before
    assert run("convert", folder, "-o", folder / out)[0] == 1


def test_blocked_paths_are_found_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    """A file where a folder is due, a folder where a file is, a link that leads nowhere."""
    (folder / "also.j2").write_text("also", "utf-8")
    new = tmp_path / "new"
    new.mkdir()
    (new / "deep").write_text("mine", "utf-8")
    status, printed = run("convert", folder, "-o", new, "--force")
    assert (status, "not a folder" in printed, (new / "also.md").exists()) == (2, True, False)
    (new / "deep").unlink()
    (new / "deep" / "hello.md").mkdir(parents=True)
    status, printed = run("convert", folder, "-o", new, "--force")
    assert (status, "a folder" in printed, (new / "also.md").exists()) == (2, True, False)
    (new / "deep" / "hello.md").rmdir()
    (new / "also.md").symlink_to(tmp_path / "nowhere")
    assert run("convert", folder, "-o", new)[0] == 2
    assert (new / "also.md").is_symlink()


def test_settings_come_from_the_file_and_the_command_line(folder: Path, tmp_path: Path) -> None:
    """The command line wins."""
    config = tmp_path / "cutover.toml"
    config.write_text('[prompts]\nkeep_trailing_newline = true\nsuffix = ".txt"\n', "utf-8")
    out = tmp_path / "new"
    run("convert", folder, "-o", out, "--config", config, "--set", "suffix=.prompt")
    assert (out / "deep" / "hello.prompt").read_bytes().endswith(b"\n\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--set", "trim_block=true"), "did you mean 'trim_blocks'?"),
        (("--set", "trim_blocks"), "expected KEY=VALUE"),
        (("--set", "filters.x=nowhere:f"), "ModuleNotFoundError"),
        (("--set", "undefined=json:loads"), "expected a subclass of jinja2.Undefined"),
        (("--set", "environment=json:loads"), "TypeError"),
    ],
)
def test_settings_with_errors_are_refused(
    folder: Path, arguments: tuple[str, ...], why: str
) -> None:
    """With status 2 and what is wrong."""
    status, printed = run("check", folder, *arguments)
    assert (status, why in " ".join(printed.split())) == (2, True), printed


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
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


def test_a_chat_with_another_layout_is_refused(tmp_path: Path) -> None:
    """An unknown role, or a number twice."""
    chat = tmp_path / "help.chat"
    chat.mkdir()
    (chat / "1.boss.j2").touch()
    assert "roles are system" in run("check", tmp_path)[1].replace("\n", " ")
    (chat / "1.boss.j2").rename(chat / "1.user.j2")
    (chat / "01.system.j2").touch()
    assert "number 1" in run("check", tmp_path)[1].replace("\n", " ")


def test_a_prompt_that_differs_is_not_written(folder: Path, tmp_path: Path) -> None:
    """The others are; the report shows values and both renderings."""
    (folder / "also.j2").write_text("also", "utf-8")
    order = ExaminationOrder(PromptSettings(), folder)
    differing = DifferingValues("also.j2", {"a": "''"}, "'x'", "'y'")
    proofs = {"deep/hello.j2": PromptProof(66), "also.j2": PromptProof(3, differing)}
    found = tuple(
        msgspec.structs.replace(prompt, proof=proofs.get(prompt.source.name))
        for prompt in examined(order)
    )
    written = write_converted(found, order, tmp_path / "new", force=False)
    report = report_on(folder, found, written, silent=True)
    fates = {entry.name: entry.fate for entry in report.prompts}
    assert fates == {
        "also.j2": "not written",
        "deep/hello.j2": "written",
        "loop.j2": "not written",
    }
    assert not (tmp_path / "new" / "also.md").exists()
    console = Console(record=True, width=100)
    print_report(report, console)
    printed = console.export_text()
    assert "also.j2 differs for a = ''" in printed
    assert "2 rendered both ways, on 69 sets of values" in printed


@pytest.mark.slow
def test_the_size_of_the_proof_is_in_the_report(folder: Path, tmp_path: Path) -> None:
    """Converting proves by default."""
    arguments = ["prompts", "convert", str(folder), "-o", str(tmp_path / "new"), "--json"]
    report = json.loads(CliRunner().invoke(app, arguments).output)
    proofs = {prompt["name"]: prompt["proof"] for prompt in report["prompts"]}
    assert proofs["loop.j2"] is None
    assert {prompt["name"]: prompt["jinja2_us"] is None for prompt in report["prompts"]} == {
        "deep/hello.j2": True,
        "loop.j2": False,
    }
    assert proofs["deep/hello.j2"]["values"] > 50
    assert proofs["deep/hello.j2"]["counterexample"] is None
