"""Every kind of finding is described: layer, severity, and whether a listed fault has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from compare.causes.live_answers import LIVE_ANSWER, OWN_HISTORY
from compare.content import ContentClass
from compare.findings import Finding
from compare.report.document import severity_of
from cutover.selftest.trials import SEEDED

DOCS = Path(__file__).resolve().parents[2] / "docs"
REPORT, SELF_TEST, DECISION = (
    (DOCS / name).read_text("utf-8")
    for name in ("report.md", "selftest.md", "decisions/0035-ids-of-causes.md")
)
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (severe|serious|slight) \| ", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def layers_by_kind() -> dict[str, str]:
    """Return the layer of every kind of finding."""
    kinds = {str(it.__struct_config__.tag): it for it in get_args(Finding)}
    return {
        kind: next(
            str(field.default) for field in msgspec.structs.fields(it) if field.name == "layer"
        )
        for kind, it in kinds.items()
    }


def test_the_page_of_the_report_describes_every_kind() -> None:
    """With its layer and its severity, and none that is not there."""
    due = {kind: (layer, severity_of(kind)) for kind, layer in layers_by_kind().items()}
    assert {kind: (layer, severity) for kind, layer, severity in _ROW.findall(REPORT)} == due


def test_the_page_of_the_report_names_every_class_and_every_noise() -> None:
    """A class is part of an id; `after` is an id, or one of two words."""
    for name in (*get_args(ContentClass), LIVE_ANSWER, OWN_HISTORY):
        assert f"`{name}`" in REPORT, name


def test_the_page_of_the_self_test_names_every_kind() -> None:
    """Those that have a listed fault, and those that have none."""
    kinds = layers_by_kind()
    seeded = {fault.kind for fault in SEEDED}
    rows = re.findall(r"^\| (\w+) \| (.*?) \|(.*?)\|$", SELF_TEST, re.MULTILINE)
    told = {
        layer: (set(_NAME.findall(listed)), set(_NAME.findall(others)))
        for layer, listed, others in rows
        if layer in kinds.values()
    }
    assert told == {
        layer: (
            {kind for kind, its in kinds.items() if its == layer and kind in seeded},
            {kind for kind, its in kinds.items() if its == layer and kind not in seeded},
        )
        for layer in kinds.values()
    }


def test_the_decision_names_kinds_there_are() -> None:
    """Its table says what the place of a kind is."""
    rows = re.findall(r"^\| (`.*?) \| ", DECISION, re.MULTILINE)
    named = {name for row in rows for name in _NAME.findall(row)}
    assert named
    assert named <= layers_by_kind().keys()
