"""Proofs: what the obvious conversion breaks is found, shrunk and shown, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.prompts.case import Case
from cutover.prompts.environment import prompting
from cutover.prompts.proof import proved
from cutover.prompts.proving import Orders, prove_all
from router.config import PromptSettings

SETTINGS = PromptSettings()


def case(folder: Path, old: str, new: str, *variables: str) -> Case:
    """Give a prompt, as somebody might have converted it."""
    (folder / "it.j2").write_bytes(old.encode())
    return Case("it.j2", ("it.j2",), variables, new)


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
    found = proved(prompting(SETTINGS, tmp_path), prompt).counterexample
    assert found is not None
    assert (found.template, found.values) == ("it.j2", shown)
    assert found.legacy != found.graph


def test_literal_braces_left_alone_are_found(tmp_path: Path) -> None:
    """PromptTemplate takes them for variables nobody gives."""
    made = prompting(SETTINGS, tmp_path)
    found = proved(made, case(tmp_path, '{"a": 1} {{ a }}', '{"a": 1} {a}', "a"))
    assert found.counterexample is not None
    assert "KeyError" in found.counterexample.graph


def test_equal_ways_are_tried_on_edges_and_drawings(tmp_path: Path) -> None:
    """And the report says on how many; a prompt without variables has one rendering."""
    made = prompting(SETTINGS, tmp_path)
    found = proved(made, case(tmp_path, "{{ a }}{{ b }}\n\n", "{a}{b}\n", "a", "b"))
    assert (found.holds, found.values > 50) == (True, True)
    assert proved(made, case(tmp_path, "x{}", "x{{}}")).values == 1


def test_a_chat_is_rendered_as_a_whole(tmp_path: Path) -> None:
    """Message by message; a variable with a placeholder's name is no equal."""
    (tmp_path / "1.j2").write_text("{{ a }}", "utf-8")
    (tmp_path / "2.j2").write_text("{}{{ b }}", "utf-8")
    text = """[{"role": "system", "content": "{a}"}, {"role": "placeholder", "content": "{old}"},
        {"role": "user", "content": "{{}}{b}"}]"""
    prompt = Case("it.chat", ("1.j2", "2.j2"), ("a", "b"), text, chat=True, placeholders=("old",))
    made = prompting(SETTINGS, tmp_path)
    assert proved(made, prompt).holds
    wrong = Case("it.chat", ("2.j2", "1.j2"), ("a", "b"), text, chat=True, placeholders=("old",))
    found = proved(made, wrong).counterexample
    assert found is not None
    assert found.template == "2.j2"
    clash = Case("it.chat", ("1.j2", "2.j2"), ("a", "b"), text, chat=True, placeholders=("a",))
    assert not proved(made, clash).holds


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'a'|center(10 ** 9) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ a.__class__.__mro__ }}",
    ],
)
def test_rendering_refuses_what_has_no_bounds(text: str, tmp_path: Path) -> None:
    """In the sandbox, were such a template ever to come so far."""
    found = proved(prompting(SETTINGS, tmp_path), case(tmp_path, text, "", "a"))
    assert not found.holds


@pytest.mark.slow
def test_a_template_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With its process, and it is said; the others are proved in the next."""
    (tmp_path / "good.j2").write_text("{{ a }}", "utf-8")
    loops = "{% for i in range(9999) %}" * 3 + "x" + "{% endfor %}" * 3
    cases = [case(tmp_path, loops, ""), Case("good.j2", ("good.j2",), ("a",), "{a}")]
    told: list[int] = []
    proofs = prove_all(cases, Orders(SETTINGS, tmp_path, seconds=1.5), told.append)
    assert proofs["it.j2"].failed == "it took more than 1.5 s"
    assert proofs["good.j2"].holds
    assert told == [2, 2]
