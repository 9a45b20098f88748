"""Pages: one layout, every value escaped, nothing loaded; durations and shares for people."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from evidence.pages import PageTemplates

PAGE = """{% extends "base.html.j2" %}
{% from "parts.html.j2" import counts, prose, reasons %}
{% block title %}{{ title }}{% endblock %}
{% block tone %}good{% endblock %}
{% block header %}<h1>{{ prose(title) }}</h1>{{ reasons([title]) }}
{{ counts([("requests", 1234, false), ("failed", 0, true), ("good", "3 /s", false)]) }}
{% endblock %}
"""


def test_a_report_extends_the_shared_layout(tmp_path: Path) -> None:
    """Its own template finds the shared ones; markup and control characters in values are text."""
    (tmp_path / "page.html.j2").write_text(PAGE)
    text = PageTemplates(tmp_path).render("page.html.j2", title="<b>`x`\x1b")
    assert "<title>&lt;b&gt;`x`" in text
    assert "<h1>&lt;b&gt;<code>x" in text
    assert "\x1b" not in text
    assert 'class="verdict good"' in text
    assert "<dt>requests</dt><dd>1,234</dd>" in text
    assert '<div class="zero">' in text
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text


def test_a_misspelt_name_is_an_error(tmp_path: Path) -> None:
    """A page never shows a value as nothing because its name is wrong."""
    (tmp_path / "page.html.j2").write_text("{{ tilte }}")
    with pytest.raises(UndefinedError):
        PageTemplates(tmp_path).render("page.html.j2", title="x")
