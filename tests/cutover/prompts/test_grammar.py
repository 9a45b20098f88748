"""Templates drawn from a grammar of what projects write: whatever converts is equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader

from cutover.prompts.environment import environment_of, team_environment
from cutover.prompts.judgement import filled, judge, nested
from graph_impl.templates import prompt_of
from router.config.schema import PromptSettings

NAMES = ("a", "b", "x", "名")
LITERALS = st.sampled_from(
    [
        "",
        " ",
        "\n",
        "  \n",
        "\r\n",
        "text",
        "{",
        "}",
        "{}",
        '{"k": [1]}',
        "{ {",
        "赤尾",
        "<&>",
        "%s",
    ]
)
NAME = st.sampled_from(NAMES)
CONSTANT = st.sampled_from(
    ["1", "0", "'s'", "''", "'{}'", "true", "none", "[1, 'y']", "'<b>'", "2.5", "'a\\nb'"]
)
FILTER = st.sampled_from(
    [
        "upper",
        "trim",
        "safe",
        "string",
        "default('d')",
        "d",
        "length",
        "join('-')",
        "e",
        "replace('s', '{{')",
    ]
)
TEST = st.sampled_from(["is defined", "is none", "is odd", "is string", "== 1", "in [1, 's']"])
DASH = st.sampled_from(["", "-", "+"])
FILES = {
    "inc.j2": "[{{ a }}{% set x = 'i' %}{{ x }}]\n",
    "mac.j2": "{% macro m(p='d') %}({{ p }}{{ b }}){% endmacro %}",
    "base.j2": "<{% block one %}1{{ a }}{% endblock %}|{% block two %}{{ x }}{% endblock %}>",
}


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw what may stand between braces: values, constants, filters, joins, choices, calls."""
    base = draw(NAME | NAME | CONSTANT)
    match draw(st.integers(0, 9)):
        case 0:
            return f"{base}|{draw(FILTER)}"
        case 1:
            return f"{base} ~ {draw(CONSTANT)} ~ {draw(NAME)}"
        case 2:
            return f"{base} if {draw(CONSTANT)} {draw(TEST)} else {draw(NAME)}"
        case 3:
            return f"{base} if {draw(CONSTANT)}"
        case 4:
            return f"{draw(CONSTANT)} * 2"
        case 5:
            return f"m({base})"
        case 6:
            return draw(st.sampled_from(["loop.index", "super()", "a.b", "b[0]", "x['k']", "f()"]))
        case _:
            return base


def _pieces(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Give statements around what is drawn already."""
    wraps = [
        "{%L if C T R%}X{% else %}Y{%L endif R%}",
        "{% for x in [1, 's'] R%}X{%L endfor %}",
        "{% for k in a %}X{% endfor %}",
        "{% set x = E %}X",
        "{% set x %}X{% endset %}Y",
        "{% with a = E, x = a %}X{% endwith %}",
        "{% macro m(p) %}X{{ p }}{% endmacro %}{{ m(C) }}Y",
        "{% from 'mac.j2' import m with context %}X",
        "{% import 'mac.j2' as l %}{{ l.m(a) }}X",
        "{% filter upper %}X{% endfilter %}",
        "{% include 'inc.j2' %}X",
        "{% include 'inc.j2' without context %}X",
        "{% raw %}{{ x }}{% endraw %}X{# {{ y }} #}",
        "{% autoescape true %}X{% endautoescape %}",
        "{% block bN %}X{% endblock %}Y",
        "{% block bN scoped %}{% set b = C %}X{% endblock %}Y",
    ]

    @st.composite
    def wrapped(draw: st.DrawFn) -> str:
        text = draw(st.sampled_from(wraps))
        filled_in = {
            "X": draw(children),
            "Y": draw(children),
            "E": draw(expressions()),
            "C": draw(CONSTANT),
            "T": draw(TEST),
            "L": draw(DASH),
            "N": str(draw(st.integers(0, 9))),
            "R": draw(st.sampled_from(["", "-"])),
        }
        return "".join(filled_in.get(letter, letter) for letter in text)

    return wrapped() | st.tuples(children, children).map("".join)


BODY = st.recursive(
    LITERALS
    | expressions().map("{{{{ {} }}}}".format)
    | expressions().map("{{{{- {} -}}}}".format),
    _pieces,
    max_leaves=8,
)
TEMPLATES = st.one_of(
    BODY,
    BODY,
    st.tuples(BODY, BODY).map(
        lambda two: (
            "{% extends 'base.j2' %}{% set x = 'k' %}{% block one %}"
            f"{two[0]}{{% endblock %}}{two[1]}"
        )
    ),
)
SETTINGS = st.builds(
    PromptSettings,
    trim_blocks=st.booleans(),
    lstrip_blocks=st.booleans(),
    keep_trailing_newline=st.booleans(),
    newline_sequence=st.sampled_from(["\n", "\n", "\r\n"]),
    autoescape=st.sampled_from([False, False, False, True]),
    undefined=st.sampled_from(["default", "default", "strict"]),
)
VALUES = st.fixed_dictionaries(
    dict.fromkeys(
        NAMES, st.sampled_from([None, "", "{", "{{7*7}}", "a\r\n", "赤", "<&>", 0, 1.5, True])
    )
)


@pytest.mark.slow
@given(text=TEMPLATES, made=SETTINGS, values=VALUES)
def test_what_converts_is_equal(text: str, made: PromptSettings, values: dict[str, object]) -> None:
    """With what the team's environment renders, on any values.

    A template that was read otherwise than Jinja2 renders it stays.
    """
    files = DictLoader({**FILES, "it.j2": text})
    environment = environment_of(made, Path())
    environment.loader = files
    judged = judge(environment, "it.j2")
    if judged.label == "stays":
        return
    given_ = {name: values[str(path[0])] for name, path in judged.paths.items()}
    own = team_environment(made)
    own.loader = files
    rendered = own.get_template("it.j2").render(nested(judged.paths, given_))
    assert filled(judged.pieces, given_) == rendered
    assert prompt_of(judged.text)(given_) == rendered
