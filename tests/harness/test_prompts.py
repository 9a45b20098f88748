"""`cutover prompts`: what is converted renders equally, and what is not is named by its line."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graph_impl.flow import PROMPTS
from harness.cli import cli

TEMPLATES = Path(__file__).parents[2] / "legacy" / "prompts"


def prompts(*arguments: object) -> tuple[int, list[str]]:
    """Run the command; return its exit status and lines."""
    done = CliRunner().invoke(cli, ["prompts", *map(str, arguments)])
    return done.exit_code, done.output.splitlines()


def template(folder: Path, text: str, name: str = "one.j2") -> Path:
    """Write a template."""
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_the_built_in_flows_have_equal_prompts() -> None:
    """Each template of legacy, filled in as graph's nodes fill in their own."""
    status, lines = prompts("check")
    assert status == 0
    assert [one.partition(":")[0] for one in lines[:-1]] == [
        one.stem for one in sorted(TEMPLATES.iterdir())
    ]
    assert lines[-1] == "next: cutover diff"


def test_the_built_in_prompts_are_what_convert_writes(tmp_path: Path) -> None:
    """Byte for byte, from templates with conditions, loops, filters and white space control."""
    assert prompts("convert", TEMPLATES, "--to", tmp_path)[0] == 0
    ours, theirs = (
        {one.name: one.read_bytes() for one in folder.iterdir()} for folder in (PROMPTS, tmp_path)
    )
    assert ours == theirs
    source = b"".join(one.read_bytes() for one in TEMPLATES.iterdir())
    assert all(one in source for one in (b"{%- if", b"{% for", b"| trim", b"-%}"))


def test_what_is_converted_is_equal_in_its_folder(tmp_path: Path) -> None:
    """Once more changes nothing; a line that is changed by hand is named."""
    assert prompts("convert", TEMPLATES, "--to", tmp_path)[0] == 0
    assert prompts("convert", TEMPLATES, "--to", tmp_path)[0] == 0
    assert prompts("check", TEMPLATES, tmp_path)[0] == 0
    changed = tmp_path / "companion_extraction.txt"
    changed.write_text(changed.read_text("utf-8").replace("{{", "{").replace("}}", "}"), "utf-8")
    (tmp_path / "chat_system.j2").unlink()
    status, lines = prompts("check", TEMPLATES, tmp_path)
    assert (status, lines[-1]) == (1, "next: mend 2 of 9 prompts")
    assert f"chat_system: {tmp_path}: no chat_system.txt and no chat_system.j2" in lines
    assert any(one.startswith("companion_extraction: ") for one in lines)
    status, lines = prompts("convert", TEMPLATES, "--to", tmp_path)
    assert status == 1
    assert f"{changed}: holds another prompt: remove it, or name another --to" in lines


@pytest.mark.parametrize(
    ("text", "name", "written"),
    [
        ("Hi {{ name }}, {{name}}!\n", "one.txt", "Hi {name}, {name}!"),
        ('{# why #}Only {"a": {{ x }}}', "one.txt", 'Only {{"a": {x}}}'),
        ("{% raw %}{{ x }}{% endraw %}\r\nb\r\n", "one.txt", "{{{{ x }}}}\nb"),
        ("a\n  {{- x -}}  \nb", "one.txt", "a{x}b"),
        ("{% if x %}{{ x | trim }}{% endif %}\n", "one.j2", None),
        ("{% for x in xs %}{{ loop.index }}. {{ x }}\n{% endfor %}", "one.j2", None),
        ("{{ user.name }}", "one.j2", None),
        ("{{ range(3) | list }}", "one.j2", None),
    ],
)
def test_a_template_becomes_an_f_string_where_that_can_say_it(
    tmp_path: Path, text: str, name: str, written: str | None
) -> None:
    """Else it stays as it is, for LangChain's Jinja2 format."""
    to = tmp_path / "to"
    status, lines = prompts("convert", template(tmp_path, text), "--to", to)
    assert status == 0, lines
    assert re.search(rf"{name}: .*, equal in \d+ renderings$", lines[0])
    assert [(one.name, one.read_bytes().decode()) for one in to.iterdir()] == [
        (name, (tmp_path / "one.j2").read_text("utf-8") if written is None else written)
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\n{% include 'x.j2' %}", "one.j2:2: LangChain loads no other template"),
        ("{{ a | shout }}", "one.j2:1: LangChain has no filter 'shout': apply it in Python"),
        ("{% if a is loud %}{% endif %}", "one.j2:1: LangChain has no test 'loud'"),
        ("\n\n{% for a in %}", "one.j2:3: no template: "),
        ("{{ a + 1 + [] }}", "one: no parameters to render it with: name --values FILE"),
        ("{{ x.__class__ }}", "one, line 1: Jinja2 has"),
    ],
)
def test_what_stays_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    """Nothing is written for it."""
    to = tmp_path / "to"
    status, lines = prompts("convert", template(tmp_path, text), "--to", to)
    assert (status, to.exists()) == (1, False)
    assert problem in lines[0]
    assert lines[-1] == "next: mend 1 of the templates, or write those in Python"


STAYS = tomllib.loads(Path(__file__).with_name("templates.toml").read_text("utf-8"))["stays"]


@pytest.mark.parametrize("row", STAYS)
def test_what_stays_holds_up_no_other(tmp_path: Path, row: str) -> None:
    """Nor do a folder and a dead link with the name of a template, or bytes that are no text."""
    text, problem = STAYS[row]
    template(tmp_path, text, "bad.j2")
    template(tmp_path, "Hi {{ name }}", "good.j2")
    (tmp_path / "folder.j2").mkdir()
    (tmp_path / "link.j2").symlink_to("nowhere")
    (tmp_path / "bytes.j2").write_bytes(b"\xff\xfe")
    status, lines = prompts("convert", tmp_path, "--to", tmp_path / "to")
    assert (status, [one.name for one in (tmp_path / "to").iterdir()]) == (1, ["good.txt"])
    assert any("bad" in one and problem in one for one in lines), lines
    assert lines[-1] == "next: mend 4 of the templates, or write those in Python"


def test_own_parameters_prove_what_texts_cannot(tmp_path: Path) -> None:
    """Such as numbers, and objects with attributes."""
    values = template(tmp_path, '{"n": 2, "user": {"name": "Ada"}}\n', "values.jsonl")
    path = template(tmp_path, "{{ n + 2 }} {{ user.name }}")
    assert prompts("convert", path)[0] == 1
    status, lines = prompts("convert", path, "--values", values)
    assert (status, lines[-1]) == (0, "next: the same with --to FOLDER")
    assert lines[0].endswith("jinja2, equal in 1 renderings")


def test_prompts_of_a_module_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that a team has written already."""
    code = "from langchain_core.prompts import PromptTemplate\n"
    code += "one = PromptTemplate.from_template('Hi {name}')\n"
    template(tmp_path, code, "own_prompts.py")
    monkeypatch.syspath_prepend(tmp_path)
    template(tmp_path, "Hi {{ name }}")
    assert prompts("check", tmp_path, "own_prompts")[0] == 0
    template(tmp_path, "Hi {{ name }}", "two.j2")
    status, lines = prompts("check", tmp_path, "own_prompts")
    assert status == 1
    assert "two: own_prompts: no folder, and module 'own_prompts' has no attribute 'two'" in lines
