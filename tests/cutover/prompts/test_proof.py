"""Proofs: what the obvious conversion breaks is found, shrunk and shown, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.prompts.environment import environment_of
from cutover.prompts.examination import ExaminationOrder, examine_folder
from cutover.prompts.judgement import ProofCase
from cutover.prompts.proof import jinja2_format_cost, proved
from cutover.prompts.template import ValuePath
from router.config.schema import PromptSettings

SETTINGS = PromptSettings()


def paths(*names: str) -> dict[str, ValuePath]:
    """Return variables that are passed under their own names."""
    return {name: (name,) for name in names}


def case(folder: Path, old: str, new: str, *variables: str) -> ProofCase:
    """Write a template; return it with the text a careless conversion gives."""
    (folder / "it.j2").write_bytes(old.encode())
    return ProofCase("it.j2", ("it.j2",), paths(*variables), new)


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("{{ a }}\n", "{a}\n", {"a": "''"}),
        ("{{ a }}\r\n-", "{a}\r\n-", {"a": "''"}),
        ("{{ a|upper }}", "{a}", {"a": "None"}),
        ("{{ a|default('-', true) }}", "{a}", {"a": "''"}),
        ("{{ a or '' }}{{ b }}", "{a}{b}", {"a": "0", "b": "''"}),
        ("{{ a|e }}", "{a}", {"a": "'<'"}),
        ("{% if a %}{{ a }}{% endif %}", "{a}", {"a": "0"}),
        ("{{ a|trim }}", "{a}", {"a": "'\\n'"}),
    ],
)
def test_a_difference_is_found_and_shrunk(
    old: str, new: str, shown: dict[str, str], tmp_path: Path
) -> None:
    """To values as simple as there are, with what both ways gave."""
    prompt = case(tmp_path, old, new, *shown)
    found = proved(environment_of(SETTINGS, tmp_path), prompt).counterexample
    assert found is not None
    assert (found.template, found.values) == ("it.j2", shown)
    assert found.legacy != found.graph


def test_literal_braces_left_alone_are_found(tmp_path: Path) -> None:
    """PromptTemplate takes them for variables."""
    made = environment_of(SETTINGS, tmp_path)
    found = proved(made, case(tmp_path, '{"a": 1} {{ a }}', '{"a": 1} {a}', "a"))
    assert found.counterexample is not None
    assert "KeyError" in found.counterexample.graph


def test_equal_ways_are_tried_on_edges_and_drawings(tmp_path: Path) -> None:
    """And the report says on how many; a prompt without variables has one rendering."""
    made = environment_of(SETTINGS, tmp_path)
    found = proved(made, case(tmp_path, "{{ a }}{{ b }}\n\n", "{a}{b}\n", "a", "b"))
    assert (found.holds, found.values > 50) == (True, True)
    assert proved(made, case(tmp_path, "x{}", "x{{}}")).values == 1


def test_a_chat_is_rendered_as_a_whole(tmp_path: Path) -> None:
    """Message by message; a variable with a placeholder's name is no equal."""
    (tmp_path / "1.j2").write_text("{{ a }}", "utf-8")
    (tmp_path / "2.j2").write_text("{}{{ b }}", "utf-8")
    text = """[{"role": "system", "content": "{a}"}, {"role": "placeholder", "content": "{old}"},
        {"role": "user", "content": "{{}}{b}"}]"""
    both = paths("a", "b")
    parts = ("1.j2", "2.j2")
    prompt = ProofCase("it.chat", parts, both, text, chat=True, placeholders=("old",))
    made = environment_of(SETTINGS, tmp_path)
    assert proved(made, prompt).holds
    wrong = ProofCase("it.chat", parts[::-1], both, text, chat=True, placeholders=("old",))
    found = proved(made, wrong).counterexample
    assert found is not None
    assert found.template == "2.j2"
    clash = ProofCase("it.chat", parts, both, text, chat=True, placeholders=("a",))
    assert not proved(made, clash).holds


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m['role'] }}\n{% endfor %}x", "offered"),
        ("{% if a %}{{ a|upper }}{% endif %}", "offered"),
        ("{{ a }}{% if b %}x{% endif %}\n\n", "offered"),
        ("{{ a|shout }}", "not offered"),
        ("{% include '_h.j2' %}{{ a|upper }}", "not offered"),
        ("{% if x %}\n{{ x }}{% endif %}\n", "not offered"),
    ],
)
def test_jinja2_format_is_offered_where_it_is_equal(
    text: str, verdict: str, tmp_path: Path
) -> None:
    """With the price of a call; not where filters, includes or settings are the team's own."""
    (tmp_path / "_h.j2").write_text("x", "utf-8")
    (tmp_path / "it.j2").write_text(text, "utf-8")
    settings = PromptSettings(
        trim_blocks=verdict == "not offered", filters={"shout": "textwrap:dedent"}
    )
    cost = jinja2_format_cost(environment_of(settings, tmp_path), "it.j2")
    assert (cost is not None and cost > 0) == (verdict == "offered")


@pytest.mark.slow
def test_a_template_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With its process, also within one computation; the others are examined in the next."""
    (tmp_path / "good.j2").write_text("{{ a }}", "utf-8")
    (tmp_path / "huge.j2").write_text("{{ 9 ** (9 ** 9) }}", "utf-8")
    calls: list[int] = []
    order = ExaminationOrder(SETTINGS, tmp_path, prove=True, seconds=1.5)
    good, huge = examine_folder(order, calls.append)
    assert huge.templates[0].reasons[0].detail.startswith("it took more than 1.5 s")
    assert (good.label, good.fit, huge.label) == ("converts", True, "stays")
    assert calls == [2, 2]
