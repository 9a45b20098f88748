"""Environments: the team's own, files in other encodings, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compare.layers.prompt_sources import PromptMap
from cutover.prompts.conversion import map_document, write_converted
from cutover.prompts.environment import ImportRefused, environment_of
from cutover.prompts.examination import ExaminationOrder, ExaminedPrompt, examine
from cutover.prompts.folder import prompts_in
from cutover.prompts.judgement import judge
from router.config.schema import PromptSettings

TEAM = "tests.cutover.prompts.team"


def examined(order: ExaminationOrder) -> tuple[ExaminedPrompt, ...]:
    """Examine a folder in this process."""
    environment = environment_of(order.settings, order.folder)
    sources = prompts_in(order.folder, order.settings)
    return tuple(examine(environment, source, order) for source in sources)


@pytest.mark.parametrize("name", ["ENVIRONMENT", "made"])
def test_the_teams_own_environment_is_used(name: str, tmp_path: Path) -> None:
    """Its delimiters, its loader, its methods; imported, or made by what is imported."""
    (tmp_path / "deep").mkdir()
    text = "{% include '../shared/head.j2' %}\n{{ no variable }} << b >>"
    (tmp_path / "deep" / "it.j2").write_text(text, "utf-8")
    settings = PromptSettings(environment=f"{TEAM}:{name}")
    judged = judge(environment_of(settings, tmp_path), "deep/it.j2")
    assert (judged.label, judged.text) == ("converts", "Head {a}{{{{ no variable }}}} {b}")


@pytest.mark.parametrize(("text", "label"), [("Head << a >>\n", "converts"), ("Own", "stays")])
def test_a_name_with_two_texts_is_not_guessed(text: str, label: str, tmp_path: Path) -> None:
    """The folder's file is not the one that the team's loader includes."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "head.j2").write_text(text, "utf-8")
    (tmp_path / "it.j2").write_text("{% include 'shared/head.j2' %}", "utf-8")
    settings = PromptSettings(environment=f"{TEAM}:ENVIRONMENT")
    judged = judge(environment_of(settings, tmp_path), "it.j2")
    assert judged.label == label, judged.reasons
    assert all("'shared/head.j2' is another text here" in why.detail for why in judged.reasons)


@pytest.mark.parametrize("name", ["NATIVE", "TEAM", "Relative.join_path"])
def test_a_setting_that_is_no_environment_is_refused(name: str, tmp_path: Path) -> None:
    """So is one that does not render text."""
    with pytest.raises(ImportRefused):
        environment_of(PromptSettings(environment=f"{TEAM}:{name}"), tmp_path)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "latin-1"])
def test_encodings_are_kept(encoding: str, tmp_path: Path) -> None:
    """Of text and braces alike."""
    text = "Grüße {{ a }} {}" if encoding == "latin-1" else "赤尾 {{ a }} {}"
    (tmp_path / "it.j2").write_bytes(text.encode(encoding))
    order = ExaminationOrder(PromptSettings(encoding=encoding), tmp_path)
    write_converted(examined(order), order, tmp_path / "new", force=False)
    made = (tmp_path / "new" / "it.md").read_bytes().decode(encoding)
    assert made == text.replace("{}", "{{}}").replace("{{ a }}", "{a}")


def test_carriage_returns_are_kept(tmp_path: Path) -> None:
    """As the environment writes them: each newline of the template becomes its sequence."""
    (tmp_path / "it.j2").write_bytes(b"a\r\n{{ b }}\nc\r\n")
    settings = PromptSettings(newline_sequence="\r\n", keep_trailing_newline=True)
    order = ExaminationOrder(settings, tmp_path)
    write_converted(examined(order), order, tmp_path, force=False)
    assert (tmp_path / "it.md").read_bytes() == b"a\r\n{b}\r\nc\r\n"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """And the others are judged."""
    (tmp_path / "bad.j2").write_bytes(b"\xff\xfe{{ a }}")
    (tmp_path / "deep.j2").write_text("{{ " + "(" * 2_000 + "1" + ")" * 2_000 + " }}", "utf-8")
    (tmp_path / "long.j2").write_text("{{ 1" + " + 1" * 5_000 + " }}", "utf-8")
    (tmp_path / "good.j2").write_text("{{ a }}", "utf-8")
    found = examined(ExaminationOrder(PromptSettings(), tmp_path))
    kinds = {p.source.name: [why.kind for why in p.templates[0].reasons] for p in found}
    assert kinds.pop("long.j2")
    assert kinds == {"bad.j2": ["unreadable"], "deep.j2": ["syntax"], "good.j2": []}


def test_the_map_holds_what_stays_too(tmp_path: Path) -> None:
    """With the lines of what is computed, and of what is included."""
    (tmp_path / "_in.j2").write_text("a\n{{ b }}", "utf-8")
    (tmp_path / "it.j2").write_text("{% include '_in.j2' %}\n{{ c|upper }}", "utf-8")
    found = examined(ExaminationOrder(PromptSettings(), tmp_path))
    (prompt,) = msgspec.json.decode(map_document(found), type=PromptMap).prompts
    assert [(type(p).__name__, p.file, p.line) for p in prompt.pieces] == [
        ("Literal", "_in.j2", 1),
        ("Variable", "_in.j2", 2),
        ("Literal", "it.j2", 1),
        ("Dynamic", "it.j2", 2),
    ]
