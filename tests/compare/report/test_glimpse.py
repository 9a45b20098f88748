"""Glimpses: what differs can be told apart at a glance, whatever it is."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.findings import Finding, TextChanged
from compare.report import markdown, page, report_of
from compare.report.changes import against
from compare.report.document import SEVERITIES, severity_of
from compare.report.glimpse import cluster_glimpse, glimpse, marked
from compare.tally import Tally
from contract.errors import visible
from contract.records import ErrorRecord
from cutover.selftest.exchanges import SYSTEM, Script, batch, exchange, store
from tests.compare.pairs import tallied
from tests.support.commands import run_command

LONG = "word " * 40
ALIKE = {
    "a space at the end": ("weather", "weather "),
    "a space at the end of a long text": (LONG, f"{LONG} "),
    "two spaces": ("a b", "a  b"),
    "a tab": ("a b", "a\tb"),
    "a carriage return": ("a\nb", "a\r\nb"),
    "a no-break space": ("a b", "a\u00a0b"),
    "an ideographic space": ("a b", "a\u3000b"),
    "a zero-width space": ("ab", "a\u200bb"),
    "a variation selector": ("\u2764", "\u2764\ufe0f"),
    "a soft hyphen": ("ab", "a\u00adb"),
    "a letter that is composed": ("caf\u00e9", "cafe\u0301"),
    "a sign that stands for a space": (" a", "\u00b7a"),
    "a tag": ("ok", "ok\U000e0041"),
}


def shown(legacy: str, graph: str) -> tuple[str | None, str | None]:
    """Return a glimpse of two texts."""
    return glimpse(TextChanged(path="final", exchange="x", legacy=legacy, graph=graph))


@pytest.mark.parametrize("name", ALIKE)
def test_what_looks_alike_is_told_apart_everywhere(tmp_path: Path, name: str) -> None:
    """In the comment, on the page, closed and open, and in the terminal."""
    legacy, graph = (Script(stored=text) for text in ALIKE[name])
    report = report_of(tallied(exchange(legacy, graph)), "captures", "ignore")
    [cluster] = report.clusters
    lines = markdown(report).splitlines()
    [row] = [line for line in lines if cluster.id in line and line.startswith("|")]
    one, other = re.findall(r"`[^`]*`", row)[1:3]
    assert one != other
    [closed] = re.findall(r'<span class="glimpse">(.*?)</span>', page(report))
    one, other = re.findall(r"<(?:del|ins)>(.*?)</(?:del|ins)>", closed)
    assert one != other
    store(tmp_path / "captures", batch(exchange(legacy, graph)))
    _, printed = run_command("diff", tmp_path / "captures", "-o", tmp_path / "out")
    [line] = [line for line in printed.splitlines() if re.search(rf"{cluster.id} *$", line)]
    [(one, other)] = re.findall(r"content  +(.*?) → (.*?)  +\w+ *$", line)
    assert one != other
    for text in (closed, row, line):
        assert visible(text) == text


@given(st.text(max_size=80), st.text(max_size=80))
def test_different_texts_have_different_glimpses(legacy: str, graph: str) -> None:
    """On one line each, with nothing in them that cannot be seen."""
    one, other = shown(legacy, graph)
    assert one is not None
    assert other is not None
    assert (one == other) == (legacy == graph)
    assert not re.search(r"[\n\r\t]|^ | $|  ", one)
    assert visible(one) == one


def test_spaces_are_written_out_where_they_cannot_be_seen() -> None:
    """Between words they stay."""
    assert marked(" a b  c \nd\te ") == "·a b··c·⏎\nd⇥e·"
    assert shown("a\nb", "a\r\n") == ("a⏎b", "a␍⏎")


def test_worse_comes_before_more_frequent() -> None:
    """A crash in one pair stands above a space in the prompts of five."""
    spaced = [exchange(graph=Script(system=f"{SYSTEM} "), number=n) for n in range(5)]
    crash = ErrorRecord("crash", "KeyError", where="graph_impl/chat.py:120")
    crashed = exchange(graph=Script(outcome="failed", error=crash, pieces=()), number=9)
    report = report_of(tallied(*spaced, crashed), "captures", "ignore")
    assert [cluster.severity for cluster in report.clusters] == ["severe", "slight"]
    seen = cluster_glimpse(report.clusters[0])
    assert seen == ("completed", "failed (crash, KeyError at graph_impl/chat.py:120)")


def test_every_kind_of_cause_has_a_severity() -> None:
    """None is forgotten."""
    kinds = [struct.__struct_config__.tag for struct in get_args(Finding)]
    assert {severity_of(str(kind)) for kind in kinds} == set(SEVERITIES)


def test_a_share_is_that_of_the_pairs_of_its_flow() -> None:
    """A thousand pairs of another flow make no cause small."""
    tally = tallied(exchange(graph=Script(system="other")), exchange(number=1))
    other = Tally(exchanges=1_000, pairs=1_000, equal=1_000, by_flow=Counter(session=1_000))
    tally.merge(other)
    report = report_of(tally, "captures", "ignore")
    [cluster] = report.clusters
    assert (cluster.share, cluster.pairs) == (0.5, 2)
    assert "1 of 2 pairs" in page(report)
    [change] = against(report, report).changes
    assert (change.older_share, change.newer_share) == (0.5, 0.5)


def test_an_exemplar_shows_its_request_and_what_to_type() -> None:
    """Quoted for a shell, whatever captures are called."""
    runs = exchange(graph=Script(system="other"))
    report = report_of(tallied(runs), "it's here", "ignore")
    [cluster] = report.clusters
    [exemplar] = cluster.exemplars
    assert runs[0].request is not None
    assert msgspec.json.decode(exemplar.request) == msgspec.json.decode(runs[0].request.body)
    text = unescape(page(report))
    assert exemplar.request in text
    replay = "cutover replay 'it'\"'\"'s here' --stack graph --only x-00000 -o replayed"
    assert f"<code>{replay}</code>" in text
    assert f"<code>cutover waive {cluster.id} --flow chat --owner" in text
