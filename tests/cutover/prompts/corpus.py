"""Templates of the kinds found in projects, and the verdict on each."""

from __future__ import annotations

from dataclasses import dataclass, field

CONVERTS, CARE, STAYS = "converts", "converts with care", "stays"

Why = tuple[str, int]
"""Kind and line of a reason; a file other than the template's own is written `kind@file`."""


@dataclass(frozen=True)
class Sample:
    """One template with the files it names, the settings of its environment, and its verdict."""

    name: str
    text: str
    label: str
    why: tuple[Why, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)


def converts(
    name: str, text: str, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Return a template that converts."""
    return Sample(name, text, CONVERTS, (), files or {}, settings)


def care(
    name: str, text: str, *why: Why, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Return a template that converts with care."""
    return Sample(name, text, CARE, why, files or {}, settings)


def stays(
    name: str, text: str, *why: Why, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Return a template that stays."""
    return Sample(name, text, STAYS, why, files or {}, settings)


BASE = (
    "You are {{ bot }}.\n{% block rules %}Be kind.\n{% endblock %}"
    "{% block end %}{% endblock %}Bye {{ user }}"
)
MACROS = (
    "{% macro rule(text, mark='-') %}{{ mark }} {{ text }}\n{% endmacro %}"
    "{% macro line() %}----\n{% endmacro %}"
)

PLAIN = (
    converts("plain", "You are {{ bot }}, a helpful assistant.\n\nUser: {{ question }}\n"),
    converts("nothing to fill", "Always answer in English.\n"),
    converts("chinese", "你是「{{ name }}」，一个{{性格}}的助手。\n"),
    converts("json", 'Answer as JSON: {"a": [{"b": {}}], "c": "{{ c }}"}\n'),
    converts("braces beside values", "{ {{ a }} } {} {{ b }}}\n"),
    converts("trailing newlines", "{{ a }}\n\n\n"),
    converts("trailing newline kept", "{{ a }}\n", keep_trailing_newline=True),
    converts("windows lines", "{{ a }}\r\nand\r\n{{ b }}\r\n"),
    converts("old mac lines", "{{ a }}\rand\r{{ b }}"),
    care("windows output", "{{ a }}\nx\n", ("carriage return", 1), newline_sequence="\r\n"),
    care("a carriage return written", "{{ a }}\n{{ '\\r\\n' }}", ("carriage return", 2)),
    converts("raw", "{% raw %}{{ not_a_name }} {% if %}{% endraw %} {{ a }}"),
    converts("comments", "{# TODO: {{ nothing }} #}a{# x\ny #}b {{ c }}"),
    converts("whitespace control", "a  \n  {#- x -#}  \n b {{- c -}}  d"),
    converts(
        "trim and lstrip",
        "  {% block x %}\n  a {{ b }}\n  {% endblock %}\nc\n",
        trim_blocks=True,
        lstrip_blocks=True,
    ),
    converts("trim switched off", "{% block x +%}\na{% endblock %}\n{{ b }}", trim_blocks=True),
    converts("not trimmed", "  {% block x %}\n  a {{ b }}\n  {% endblock %}\nc\n"),
    converts(
        "other delimiters",
        "[% block x %]<< a >>[% endblock %] {{ b }} {% c %} << x >>",
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="<<",
        variable_end_string=">>",
    ),
    converts(
        "line statements",
        "# block x\nHi {{ a }} {{ x }}\n## nothing\n# endblock\nBye\n",
        line_statement_prefix="#",
        line_comment_prefix="##",
    ),
    care("byte order mark", "\ufeffHi {{ a }}", ("byte order mark", 1)),
    converts("percent and format", "100 % %s %(a)s {0} {name!r:>10} {{ a }}"),
    converts("repeated", "{{ a }}{{ a }}{{ b }}{{ a }}"),
    care("empty", "{# nothing #}", ("empty", 1)),
)
CONSTANT = (
    converts(
        "folded filters",
        "{{ 'hello world'|upper|replace('O', '0') }} {{ [1, 2]|join(', ') }} {{ a }}",
    ),
    converts("tojson of a constant", "{{ {'a': ['<é>', 1]}|tojson }} {{ b }}"),
    converts("arithmetic", "{{ 2 * 3 + 1 }} {{ 7 // 2 }} {{ -1 }} {{ 2 ** 10 }} {{ a }}"),
    converts("a choice of constants", "{{ 'a' if 1 in [1, 2] else 'b' }}{{ c }}"),
    converts("a test of a constant", "{{ 3 is odd and 'x' is not none }}{{ a }}"),
    converts(
        "constants as Python writes them",
        "{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a'] }} {{ {'k': none} }}{{ a }}",
    ),
    care(
        "own global",
        "{{ company }} says {{ a }}",
        ("global", 1),
        globals={"company": "sys:byteorder"},
    ),
)
ATTRIBUTES = (
    care("an attribute", "\n{{ user.name }} {{ b }}", ("attribute", 2)),
    care("attributes of attributes", "{{ a.b.c }}{{ a.b.d }}", ("attribute", 1)),
    care("items", "{{ rows[0] }}{{ rows[1] }}{{ names['a'] }}", ("attribute", 1)),
    care("an attribute called like a method", "{{ user.items }}", ("attribute", 1)),
    care(
        "attributes in what is included",
        "a\n{% include '_h.j2' %}",
        ("attribute@_h.j2", 1),
        files={"_h.j2": "{{ user.name }}"},
    ),
    stays("whole and in part", "{{ user }}\n{{ user.name }}", ("attribute", 2)),
    stays("two values of one name", "{{ user_name }}\n{{ user.name }}", ("attribute", 2)),
    stays("a private attribute", "{{ user._name }}", ("attribute", 1)),
    stays("an item by a value", "{{ rows[i] }}", ("attribute", 1)),
    stays("an item by a text that is no name", "{{ rows['a b'] }}", ("attribute", 1)),
)
NAMED = (
    converts("include", "A{% include '_head.j2' %}B{{ b }}", {"_head.j2": "head {{ a }} {}\n"}),
    converts(
        "include without context",
        "{% include '_h.j2' without context %}{{ b }}",
        {"_h.j2": "[{{ 1 + 1 }}]"},
    ),
    converts(
        "include of what may be missing",
        "{% include 'no.j2' ignore missing %}{% include '_h.j2' ignore missing %}",
        {"_h.j2": "{{ a }}"},
    ),
    converts(
        "inheritance",
        "{% extends '_base.j2' %}{% block rules %}{{ super() }}Be {{ tone }}.\n{% endblock %}",
        {"_base.j2": BASE},
    ),
    converts(
        "three generations",
        "{% extends '_mid.j2' %}\n{% block end %}Z{{ super() }}{% endblock %}",
        {
            "_base.j2": BASE,
            "_mid.j2": "{% extends '_base.j2' %}{% block end %}mid {{ m }}{% endblock %}no {{ n }}",
        },
    ),
    converts(
        "a comment before extends", "{# head #}\n{% extends '_base.j2' %}", {"_base.j2": BASE}
    ),
    converts("blocks without children", BASE),
    converts(
        "a block in a block", "{% block a %}1{% block b %}{{ x }}{% endblock %}2{% endblock %}"
    ),
    converts(
        "an included child",
        "{% include '_c.j2' %}!",
        {"_base.j2": BASE, "_c.j2": "{% extends '_base.j2' %}"},
    ),
    converts("escaped text without values", "<b>{{ '<i>' }}</b>", autoescape=True),
)
STAYING = (
    stays("set", "a\n{% set tone = 'warm' %}Be {{ tone }}.", ("set", 2)),
    stays("set in a block", "{% set head %}# {{ title }}{% endset %}{{ head }}", ("set", 1)),
    stays("with", "{% with a = 'x' %}{{ a }}{% endwith %}", ("set", 1)),
    stays("joined text", "{{ 'Dear ' ~ name ~ '{}' }}", ("expression", 1)),
    stays("a constant condition", "{% if true %}{{ a }}{% endif %}", ("condition", 1)),
    stays("a loop over constants", "{% for r in ['kind', 'brief'] %}{{ r }}{% endfor %}", ("loop", 1)),
    stays("values as they are", "{{ a|string }}\n{{ b|safe }}", ("filter", 1), ("filter", 2)),
    stays("default", "Topic: {{ topic|default('none') }}", ("filter", 1)),
    stays("a filter block of constants", "{% filter upper %}quiet{% endfilter %}", ("filter", 1)),
    stays("an include of the first there is", "{% include ['no.j2', '_h.j2'] %}", ("include", 1), files={"_h.j2": "x"}),
    stays("macros", MACROS + "{{ line() }}", ("macro", 1), ("macro", 2), ("call", 3)),
    stays("imported macros", "{% from '_m.j2' import rule %}\n{% import '_m.j2' as m %}", ("import", 1), ("import", 2), files={"_m.j2": MACROS}),
    stays("statements beside blocks", "{% extends '_base.j2' %}\n{% set z = 'Z' %}", ("inheritance", 2), files={"_base.j2": BASE}),
    stays("a scoped block in a loop", "{% for x in [1, 2] %}{% block b scoped %}{{ x }}{% endblock %}{% endfor %}", ("loop", 1)),
    stays("values marked safe", "<b>{{ a|safe }}</b>", ("filter", 1), autoescape=True),
    stays("escaping switched off", "{% autoescape false %}{{ a }}{% endautoescape %}", ("autoescape", 1), autoescape=True),
    stays("a dunder", "{{ ''.__class__.__mro__ }}", ("attribute", 1)),
    stays("a macro with a condition", "{% macro m(x) %}\n{% if x %}{{ x }}{% endif %}{% endmacro %}{{ m(a) }}", ("macro", 1), ("call", 2)),
    stays("a call block", "{% macro m() %}{{ caller() }}{% endmacro %}\n{% call m() %}x{% endcall %}", ("macro", 1), ("macro", 2)),
    stays("do", "{% do items.append(1) %}{{ a }}", ("call", 1), extensions=["jinja2.ext.do"]),
    stays("break", "{% for i in [1, 2] %}\n{% break %}{% endfor %}", ("loop", 1), extensions=["jinja2.ext.loopcontrols"]),
    stays("translation", "{% trans %}Hello{% endtrans %}", ("call", 1), extensions=["jinja2.ext.i18n"]),
    stays("undefined refused", "{% include '_h.j2' without context %}", ("undefined@_h.j2", 1), files={"_h.j2": "{{ a }}"}, undefined="strict"),
    stays("messages", "x\n{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", ("loop", 2)),
    stays("a condition", "a\n\n{% if context %}Context: {{ context }}{% endif %}", ("condition", 3)),
    stays("a filter", "{{ a }}\n{{ name|title }}\n{{ items|join(', ') }}", ("filter", 2), ("filter", 3)),
    stays("truthy default", "{{ a|default('x', true) }}", ("filter", 1)),
    stays("tojson of a value", "{{ a }}\n{{ data|tojson }}", ("filter", 2)),
    stays("a call", "{{ now() }}\n{{ a.strip() }}", ("call", 1), ("call", 2)),
    stays("the attr filter", "{{ a|attr('b') }}", ("filter", 1)),
    stays("defined or not", "{% if a is defined %}{{ a }}{% endif %}", ("condition", 1)),
    stays("a test of a value", "{{ a is none }}", ("test", 1)),
    stays("a choice by value", "{{ 'x' if a else 'y' }}", ("condition", 1)),
    stays("a comparison", "{{ a == 1 }}", ("expression", 1)),
    stays("a sum", "{{ 'n: ' + a }}", ("expression", 1)),
    stays("a dynamic include", "{% include name %}", ("include", 1)),
    stays("a missing include", "a\n{% include 'gone.j2' %}", ("include", 2)),
    stays("a dynamic parent", "{% extends layout %}", ("inheritance", 1)),
    stays("included loop", "a\n{% include '_l.j2' %}", ("loop@_l.j2", 2), files={"_l.j2": "x\n{% for a in b %}{{ a }}{% endfor %}"}),
    stays("text in a filter block", "{% filter upper %}{{ a }}{% endfilter %}", ("filter", 1)),
    stays("own filter", "{{ 'x'|shout }}", ("filter", 1), filters={"shout": "textwrap:dedent"}),
    stays("own filter in place of Jinja2's", "{{ 'x'|upper }}", ("filter", 1), filters={"upper": "textwrap:dedent"}),
    stays("escaped values", "a\n<b>{{ a }}</b>", ("autoescape", 2), autoescape=True),
    stays("escaped by a filter", "{{ a|e }}", ("filter", 1)),
    stays("escaped by its ending", "{{ a }}", ("autoescape", 1), autoescape=["j2"]),
    stays("finalized values", "{{ a }}", ("finalize", 1), finalize="textwrap:dedent"),
    stays("reserved by PromptTemplate", "{{ a }}{{ stop }}", ("name", 1)),
    stays("reserved by Jinja2", "{{ self }}", ("name", 1)),
    stays("a function as a value", "{{ range }}", ("name", 1)),
    stays("a mistake", "a\n{% if x %}", ("syntax", 2)),
    stays("an unknown tag", "a\n{% nope %}", ("syntax", 2)),
    stays("a mistake when it is rendered", "{{ 1 // 0 }}", ("expression", 1)),
    stays("extends itself", "{% extends 'it.j2' %}", ("inheritance", 1)),
    stays("includes itself", "{% include 'it.j2' %}", ("include", 1)),
    stays("a required block", "{% block a required %}{% endblock %}", ("block", 1)),
    stays("a huge text", "a\n{{ 'a' * 10**7 }}", ("size", 2)),
    stays("a huge loop", "{% for i in range(10 ** 9) %}x{% endfor %}", ("loop", 1)),
    stays("a wide filter", "{{ 'a'|center(10 ** 7) }}", ("size", 1)),
)  # fmt: skip

SAMPLES = (*PLAIN, *CONSTANT, *ATTRIBUTES, *NAMED, *STAYING)
