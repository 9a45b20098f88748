"""Environments: the team's own, files in other encodings, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.cli.prompts import convert_checked
from cutover.prompts.conversion import checked, map_of
from cutover.prompts.environment import prompting
from cutover.prompts.judging import judge
from cutover.prompts.places import NotThere
from router.config import PromptSettings

TEAM = "tests.cutover.prompts.team"


@pytest.mark.parametrize("name", ["ENVIRONMENT", "made"])
def test_the_teams_own_environment_holds(name: str, tmp_path: Path) -> None:
    """Its delimiters, its loader, its methods; imported, or made by what is imported."""
    (tmp_path / "deep").mkdir()
    text = "{% include '../shared/head.j2' %}\n{{ no variable }} << b >>"
    (tmp_path / "deep" / "it.j2").write_text(text, "utf-8")
    settings = PromptSettings(environment=f"{TEAM}:{name}")
    made = prompting(settings, tmp_path)
    judged = judge(made, "deep/it.j2")
    assert (judged.label, judged.text) == ("converts", "Head {a}{{{{ no variable }}}} {b}")
    assert not made.silent


@pytest.mark.parametrize(("text", "label"), [("Head << a >>\n", "converts"), ("Own", "stays")])
def test_a_name_that_is_two_texts_is_not_guessed(text: str, label: str, tmp_path: Path) -> None:
    """The folder's file is not the one that the team's loader gives to whoever includes it."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "head.j2").write_text(text, "utf-8")
    (tmp_path / "it.j2").write_text("{% include 'shared/head.j2' %}", "utf-8")
    judged = judge(prompting(PromptSettings(environment=f"{TEAM}:ENVIRONMENT"), tmp_path), "it.j2")
    assert judged.label == label, judged.reasons
    assert all("'shared/head.j2' is another text here" in why.said for why in judged.reasons)


@pytest.mark.parametrize("name", ["NATIVE", "TEAM", "Relative.join_path"])
def test_what_is_no_environment_is_refused(name: str, tmp_path: Path) -> None:
    """So is one that does not render text."""
    with pytest.raises(NotThere):
        prompting(PromptSettings(environment=f"{TEAM}:{name}"), tmp_path)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "latin-1"])
def test_encodings_are_kept(encoding: str, tmp_path: Path) -> None:
    """Of text and braces alike."""
    text = "Grüße {{ a }} {}" if encoding == "latin-1" else "赤尾 {{ a }} {}"
    (tmp_path / "it.j2").write_bytes(text.encode(encoding))
    found = checked(tmp_path, PromptSettings(encoding=encoding), lambda _: None)
    convert_checked(found, tmp_path / "new", {}, force=False)
    made = (tmp_path / "new" / "it.md").read_bytes().decode(encoding)
    assert made == text.replace("{}", "{{}}").replace("{{ a }}", "{a}")


def test_carriage_returns_are_kept(tmp_path: Path) -> None:
    """As the environment writes them: each newline of the template becomes its sequence."""
    (tmp_path / "it.j2").write_bytes(b"a\r\n{{ b }}\nc\r\n")
    settings = PromptSettings(newline_sequence="\r\n", keep_trailing_newline=True)
    convert_checked(checked(tmp_path, settings, lambda _: None), tmp_path, {}, force=False)
    assert (tmp_path / "it.md").read_bytes() == b"a\r\n{b}\r\nc\r\n"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """And the others are judged."""
    (tmp_path / "bad.j2").write_bytes(b"\xff\xfe{{ a }}")
    (tmp_path / "deep.j2").write_text("{{ " + "(" * 2_000 + "1" + ")" * 2_000 + " }}", "utf-8")
    (tmp_path / "long.j2").write_text("{{ 1" + " + 1" * 5_000 + " }}", "utf-8")
    (tmp_path / "good.j2").write_text("{{ a }}", "utf-8")
    found = checked(tmp_path, PromptSettings(), lambda _: None)
    kinds = {name: [why.kind for why in j.reasons] for name, j in found.judged.items()}
    assert kinds.pop("long.j2")
    assert kinds == {"bad.j2": ["unreadable"], "deep.j2": ["syntax"], "good.j2": []}


def test_the_map_holds_what_stays_too(tmp_path: Path) -> None:
    """With the lines of what is computed, and of what is drawn in."""
    (tmp_path / "_in.j2").write_text("a\n{{ b }}", "utf-8")
    (tmp_path / "it.j2").write_text("{% include '_in.j2' %}\n{{ c|upper }}", "utf-8")
    found = checked(tmp_path, PromptSettings(), lambda _: None)
    (prompt,) = map_of(found, {}).prompts
    assert [(type(p).__name__, p.file, p.line) for p in prompt.pieces] == [
        ("Literal", "_in.j2", 1),
        ("Variable", "_in.j2", 2),
        ("Literal", "it.j2", 1),
        ("Dynamic", "it.j2", 2),
    ]
