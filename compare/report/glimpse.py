"""Glimpses: what differs, in a few characters of each side, so that a reader can tell them apart.

White space, and what does not show at all, is written out: `·` is a space at an edge or among
others, `⇥` a tab, `⏎` a line's end, `␍` a carriage return, and `⟨U+00A0⟩` any other character that
looks like a space or like nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from unicodedata import normalize

from compare.findings import Finding, first_difference, signature_of
from compare.report.document import ClusterReport
from contract.errors import visible

QUOTED = 60
LEAD = 10
_SPACES = re.compile(r"(?:(?<![^\n\r\t])) +| +(?![^\n\r\t])| {2,}")
_ON_ONE_LINE = str.maketrans({"\t": "⇥", "\n": "⏎", "\r": "␍"})
_ON_LINES = _ON_ONE_LINE | {ord("\n"): "⏎\n"}


class Glimpse(NamedTuple):
    """Both sides of a finding on one line; None where there is nothing."""

    legacy: str | None
    graph: str | None


def marked(text: str) -> str:
    """Write out spaces at an edge or among others, tabs and ends of lines; lines stay lines."""
    return _written_out(text, _ON_LINES)


def on_one_line(text: str) -> str:
    """Write foreign text on one line, with all its white space."""
    return _written_out(text, _ON_ONE_LINE)


def _written_out(text: str, controls: Mapping[int, str]) -> str:
    return visible(_SPACES.sub(lambda found: "·" * len(found.group()), text).translate(controls))


def spelt(text: str) -> str:
    """Write every character that is not ASCII by its number."""
    return "".join(char if char.isascii() else f"⟨U+{ord(char):04X}⟩" for char in text)


def told_apart(legacy: str, graph: str) -> tuple[str, str]:
    """Return two texts, spelt out where they differ and look the same, as é composed or not."""
    if legacy != graph and normalize("NFKC", legacy) == normalize("NFKC", graph):
        return spelt(legacy), spelt(graph)
    return legacy, graph


def glimpse(finding: Finding, most: int = QUOTED) -> Glimpse:
    """Return both sides of a finding around their first difference."""
    legacy, graph = finding.legacy, finding.graph
    if legacy is None or graph is None or legacy == graph:
        return Glimpse(_side(legacy, most), _side(graph, most))
    start = max(0, first_difference(legacy, graph) - LEAD)
    cut = _cut(legacy, start, most), _cut(graph, start, most)
    one, other = map(on_one_line, told_apart(*cut))
    if one == other:
        # A text may hold what stands for a space: then every character goes by its number.
        one, other = (ascii(it)[1:-1] for it in cut)
    return Glimpse(one, other)


def cause_of(cluster: ClusterReport) -> Finding | None:
    """Return the cause itself, as the first exemplar that holds it shows it."""
    shown = (finding for exemplar in cluster.exemplars for finding in exemplar.findings)
    return next((f for f in shown if f.after is None and signature_of(f) == cluster.id), None)


def cluster_glimpse(cluster: ClusterReport, most: int = QUOTED) -> Glimpse | None:
    """Return both sides of a cause; None where no exemplar shows it."""
    finding = cause_of(cluster)
    return None if finding is None else glimpse(finding, most)


def _side(value: str | None, most: int) -> str | None:
    return None if value is None else on_one_line(_cut(value, 0, most))


def _cut(value: str, start: int, most: int) -> str:
    end = start + most
    return f"{'…' if start else ''}{value[start:end]}{'…' if end < len(value) else ''}"
