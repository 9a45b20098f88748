"""Templates of the kinds found in projects, and what is to be said of each."""

from __future__ import annotations

from dataclasses import dataclass, field

CONVERTS, CARE, STAYS = "converts", "converts with care", "stays"

Why = tuple[str, int]
"""Kind and line of a reason; a file other than the template's own is written `kind@file`."""


@dataclass(frozen=True)
class Sample:
    """One template with the files it draws in, the settings of its environment, and its verdict."""

    name: str
    text: str
    label: str
    why: tuple[Why, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)


def converts(
    name: str, text: str, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Give a template that converts."""
    return Sample(name, text, CONVERTS, (), files or {}, settings)


def care(
    name: str, text: str, *why: Why, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Give a template that converts with care."""
    return Sample(name, text, CARE, why, files or {}, settings)


def stays(
    name: str, text: str, *why: Why, files: dict[str, str] | None = None, **settings: object
) -> Sample:
    """Give a template that stays."""
    return Sample(name, text, STAYS, why, files or {}, settings)


SHELL = "{% if a %}{% set t = 'x' %}{% endif %}"
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
    converts("whitespace control", "a  \n  {%- set x = 1 -%}  \n b {{- c -}}  d"),
    converts(
        "trim and lstrip",
        "  {% if true %}\n  a {{ b }}\n  {% endif %}\nc\n",
        trim_blocks=True,
        lstrip_blocks=True,
    ),
    converts("trim switched off", "{% if true +%}\na{% endif %}\n{{ b }}", trim_blocks=True),
    converts("not trimmed", "  {% if true %}\n  a {{ b }}\n  {% endif %}\nc\n"),
    converts(
        "other delimiters",
        "[% set x = 'y' %]<< a >> {{ b }} {% c %} << x >>",
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="<<",
        variable_end_string=">>",
    ),
    converts(
        "line statements",
        "# set x = 'y'\nHi {{ a }} {{ x }}\n## nothing\nBye\n",
        line_statement_prefix="#",
        line_comment_prefix="##",
    ),
    care("byte order mark", "\ufeffHi {{ a }}", ("byte order mark", 1)),
    converts("percent and format", "100 % %s %(a)s {0} {name!r:>10} {{ a }}"),
    converts("repeated", "{{ a }}{{ a }}{{ b }}{{ a }}"),
    care("empty", "{# nothing #}", ("empty", 1)),
)
CONSTANT = (
    converts("set", "{% set tone = 'warm' %}Be {{ tone }}, {{ name }}."),
    converts("set in a block", "{% set head %}# {{ title }}\n{% endset %}{{ head }}x{{ head }}"),
    converts("set again", "{{ x }}{% set x = 'b' %}{{ x }}"),
    converts("with", "{% with a = 'x', b = c %}{{ a }}{{ b }}{% endwith %}{{ a }}"),
    converts(
        "folded filters",
        "{{ 'hello world'|upper|replace('O', '0') }} {{ [1, 2]|join(', ') }} {{ a }}",
    ),
    converts("tojson of a constant", "{{ {'a': ['<é>', 1]}|tojson }} {{ b }}"),
    converts("joined text", "{{ 'Dear ' ~ name ~ '{}' }}"),
    converts(
        "constant conditions",
        "{% set v = 2 %}{% if v >= 2 and not false %}{{ a }}{% else %}{{ b|upper }}{% endif %}",
    ),
    converts(
        "a choice of constants", "{{ 'a' if 1 in [1, 2] else b|title }}{{ 'x' if false }}{{ c }}"
    ),
    converts(
        "a loop over constants",
        "{% for r in ['kind', 'brief'] %}{{ loop.index }}. Be {{ r }}{{ ', ' if not loop.last }}{% endfor %} {{ a }}",
    ),
    converts(
        "a loop over pairs",
        "{% for k, v in [('a', 1), ('b', 2)] if v > 1 %}{{ k }}={{ v }}{{ x }}{% else %}none{% endfor %}",
    ),
    converts("a loop over nothing", "{% for k in [] %}{{ k }}{% else %}none {{ a }}{% endfor %}"),
    converts("ranges", "{% for i in range(1, 4) %}{{ i }}:{{ a }} {% endfor %}"),
    converts("arithmetic", "{{ 2 * 3 + 1 }} {{ 7 // 2 }} {{ -1 }} {{ 2 ** 10 }} {{ a }}"),
    converts(
        "constants as Python writes them",
        "{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a'] }} {{ {'k': none} }}{{ a }}",
    ),
    converts("values as they are", "{{ a|string }}{{ b|safe }}"),
    converts("a constant item", "{% set names = {'en': 'English'} %}{{ names['en'] }} {{ a }}"),
    converts("a test of a constant", "{% if 3 is odd and 'x' is not none %}{{ a }}{% endif %}"),
    converts("a filter block of constants", "{% filter upper %}quiet{% endfilter %} {{ a }}"),
    care(
        "default", "Topic: {{ topic|default('none') }}\n{{ x|d }}", ("default", 1), ("default", 2)
    ),
    care(
        "own global",
        "{{ company }} says {{ a }}",
        ("global", 1),
        globals={"company": "sys:byteorder"},
    ),
)
DRAWN_IN = (
    converts("include", "A{% include '_head.j2' %}B{{ b }}", {"_head.j2": "head {{ a }} {}\n"}),
    converts(
        "include with names set",
        "{% set a = 'x' %}{% include '_h.j2' %}",
        {"_h.j2": "{{ a }}{{ b }}"},
    ),
    converts(
        "include without context",
        "{% include '_h.j2' without context %}{{ b }}",
        {"_h.j2": "[{{ a }}]"},
    ),
    converts(
        "include of what may lack",
        "{% include 'no.j2' ignore missing %}{% include ['no.j2', '_h.j2'] %}",
        {"_h.j2": "{{ a }}"},
    ),
    converts(
        "inheritance",
        "{% extends '_base.j2' %}{% block rules %}{{ super() }}Be {{ tone }}.\n{% endblock %}",
        {"_base.j2": BASE},
    ),
    converts(
        "three generations",
        "{% extends '_mid.j2' %}\n{% set z = 'Z' %}{% block end %}{{ z }}{{ super() }}{% endblock %}",
        {
            "_base.j2": BASE,
            "_mid.j2": "{% extends '_base.j2' %}{% block end %}mid {{ m }}{% endblock %}ignored {{ n }}",
        },
    ),
    converts(
        "a comment before extends", "{# head #}\n{% extends '_base.j2' %}", {"_base.j2": BASE}
    ),
    converts("macros", MACROS + "{{ line() }}{{ rule('Be kind') }}{{ rule(own, mark='*') }}"),
    converts(
        "imported macros",
        "{% from '_m.j2' import rule, line as l %}{% import '_m.j2' as m %}{{ l() }}{{ rule(a) }}{{ m.rule('x', '+') }}",
        {"_m.j2": MACROS},
    ),
    converts(
        "a macro in a macro",
        "{% macro a() %}[{{ x }}]{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ b() }}",
    ),
    converts("blocks without children", BASE),
    converts(
        "scoped blocks",
        "{% for x in [1, 2] %}{% block b scoped %}{{ x }}{{ a }}{% endblock %}{% endfor %}",
    ),
    converts("escaped text without values", "<b>{{ '<i>' }}</b>", autoescape=True),
    converts("values marked safe", "<b>{{ a|safe }}</b> & co", autoescape=True),
    converts(
        "escaping switched off",
        "{% autoescape false %}{{ a }}{{ '<' }}{% endautoescape %}<",
        autoescape=True,
    ),
)
STAYING = (
    stays("messages", "x\n{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", ("loop", 2)),
    stays("a condition", "a\n\n{% if context %}Context: {{ context }}{% endif %}", ("condition", 3)),
    stays("a filter", "{{ a }}\n{{ name|title }}\n{{ items|join(', ') }}", ("filter", 2), ("filter", 3)),
    stays("truthy default", "{{ a|default('x', true) }}", ("filter", 1)),
    stays("tojson of a value", "{{ a }}\n{{ data|tojson }}", ("filter", 2)),
    stays("an attribute", "\n{{ user.name }}", ("attribute", 2)),
    stays("an item", "{{ rows[0] }}{{ rows['a'] }}", ("attribute", 1)),
    stays("a call", "{{ now() }}\n{{ a.strip() }}", ("call", 1), ("call", 2)),
    stays("a dunder", "{{ ''.__class__.__mro__ }}", ("attribute", 1)),
    stays("the attr filter", "{{ a|attr('b') }}", ("filter", 1)),
    stays("defined or not", "{% if a is defined %}{{ a }}{% endif %}", ("test", 1)),
    stays("a test of a value", "{{ 'x' if a is none else a }}", ("test", 1)),
    stays("a choice by value", "{{ 'x' if a else 'y' }}", ("condition", 1)),
    stays("a comparison", "{{ a == 1 }}", ("expression", 1)),
    stays("a sum", "{{ 'n: ' + a }}", ("expression", 1)),
    stays("a dynamic include", "{% include name %}", ("include", 1)),
    stays("a missing include", "a\n{% include 'gone.j2' %}", ("include", 2)),
    stays("a dynamic parent", "{% extends layout %}", ("inheritance", 1)),
    stays("included loop", "a\n{% include '_l.j2' %}", ("loop@_l.j2", 2), files={"_l.j2": "x\n{% for a in b %}{{ a }}{% endfor %}"}),
    stays("a macro with a condition", "{% macro m(x) %}\n{% if x %}{{ x }}{% endif %}{% endmacro %}{{ m(a) }}", ("condition", 2)),
    stays("a call block", "{% macro m() %}{{ caller() }}{% endmacro %}\n{% call m() %}x{% endcall %}", ("macro", 2)),
    stays("text in a filter block", "{% filter upper %}{{ a }}{% endfilter %}", ("filter", 1)),
    stays("a name that depends", SHELL + "\n{{ t }}", ("condition", 1)),
    stays("do", "{% do items.append(1) %}{{ a }}", ("call", 1), extensions=["jinja2.ext.do"]),
    stays("break", "{% for i in [1, 2] %}\n{% break %}{% endfor %}", ("loop", 2), extensions=["jinja2.ext.loopcontrols"]),
    stays("translation", "{% trans %}Hello{% endtrans %}", ("call", 1), extensions=["jinja2.ext.i18n"]),
    stays("own filter", "{{ 'x'|shout }}", ("filter", 1), filters={"shout": "textwrap:dedent"}),
    stays("own filter in place of Jinja2's", "{{ 'x'|upper }}", ("filter", 1), filters={"upper": "textwrap:dedent"}),
    stays("escaped values", "a\n<b>{{ a }}</b>", ("autoescape", 2), autoescape=True),
    stays("escaped by a filter", "{{ a|e }}", ("filter", 1)),
    stays("escaped by its ending", "{{ a }}", ("autoescape", 1), autoescape=["j2"]),
    stays("finalized values", "{{ a }}", ("finalize", 1), finalize="textwrap:dedent"),
    stays("reserved by PromptTemplate", "{{ a }}{{ stop }}", ("name", 1)),
    stays("reserved by Jinja2", "{{ self }}", ("name", 1)),
    stays("a function as a value", "{{ range }}", ("name", 1)),
    stays("undefined refused", "{% include '_h.j2' without context %}", ("undefined@_h.j2", 1), files={"_h.j2": "{{ a }}"}, undefined="strict"),
    stays("a mistake", "a\n{% if x %}", ("syntax", 2)),
    stays("an unknown tag", "a\n{% nope %}", ("syntax", 2)),
    stays("a mistake when it is rendered", "{{ 1 // 0 }}", ("expression", 1)),
    stays("extends itself", "{% extends 'it.j2' %}", ("inheritance", 1)),
    stays("includes itself", "{% include 'it.j2' %}", ("include", 1)),
    stays("a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", ("macro", 1)),
    stays("a text that reads itself", "\n{% set x %}{{ x }}!{% endset %}{{ x }}", ("expression", 2)),
    stays("a required block", "{% block a required %}{% endblock %}", ("block", 1)),
    stays("a huge text", "a\n{{ 'a' * 10**9 }}", ("size", 2)),
    stays("a huge number", "{{ 9 ** (9 ** 9) }}", ("size", 1)),
    stays("a huge loop", "{% for i in range(10 ** 9) %}x{% endfor %}", ("size", 1)),
    stays("loops in loops", "{% for i in range(900) %}{% for j in range(900) %}x{% endfor %}{% endfor %}", ("size", 1)),
    stays("much work", "{% set x = 'a' * 900000 %}{% for i in range(900) %}{% if x|upper == i %}{% endif %}{% endfor %}", ("size", 1)),
    stays("a wide filter", "{{ 'a'|center(10 ** 9) }}", ("size", 1)),
    stays("a doubled text", "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a ~ a ~ a ~ a %}" * 12 + "{{ a }}", ("size", 1)),
)  # fmt: skip

SAMPLES = (*PLAIN, *CONSTANT, *DRAWN_IN, *STAYING)
