"""The page: one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from compare.clusters import Exemplar, Mark, Row
from compare.findings import LAYERS, Finding, excerpts, kind_of, shortened, signature_of
from compare.input.selection import moment
from compare.noise import study
from compare.noise.control import control_text
from compare.report.advice import noise_note, waive_command
from compare.report.document import ClusterReport, Report, finding_source, title_of
from compare.report.glimpse import cluster_glimpse, marked, told_apart
from compare.report.latency import Latency
from compare.report.text_diff import Piece, word_diff
from compare.report.timeline import bars_of, marks_of, timeline_of
from evidence.pages import PageTemplates

WHOLE = 40
"""So many causes are shown with all exemplars; of the rest one, near where its streams part."""
NEAR = 6
VALUE_BEYOND = 2_000
FOLLOWING_SHOWN = 8
FOLLOWING_OPEN = 2
FOLDED_FROM = 6
METRIC_TITLES = {
    "first": ("Time to first event", "TTFE: from the request to the first event of any kind"),
    "text": ("Time to first text", "TTFO: from the request to the first event with answer text"),
    "end": ("End to end", "from the request to the last event"),
}


class Stretch(NamedTuple):
    """Rows in a row that are drawn alike; long equal ones are folded."""

    folded: bool
    rows: tuple[Row, ...]
    parts: bool


class ExemplarView(NamedTuple):
    """One exemplar as a cause shows it.

    `others` are the ids of further causes in that exchange; `left_out` counts rows that are not
    shown, `more` findings.
    """

    exemplar: Exemplar
    own: tuple[Finding, ...]
    following: tuple[Finding, ...]
    more: int
    others: tuple[str, ...]
    rows: tuple[Row, ...]
    left_out: int

    @property
    def parted(self) -> bool:
        """Whether the streams differ at all; many a cause does not reach them."""
        return any(row.mark != "same" for row in self.rows)


class Figure(NamedTuple):
    """All series of one flow and metric, served or not, on one axis."""

    flow: str
    metric: str
    series: tuple[Latency, ...]


def page(report: Report) -> str:
    """Render the report; every value is escaped, nothing is loaded from anywhere."""
    return _templates().render(
        "page.html.j2",
        report=report,
        layers=LAYERS,
        present=[layer for layer in LAYERS if any(c.layer == layer for c in report.clusters)],
        titles={cluster.id: cluster.title for cluster in report.clusters},
        anchors={cluster.id: f"c-{cluster.flow}-{cluster.id}" for cluster in report.clusters},
    )


@cache
def _templates() -> PageTemplates:
    return PageTemplates(
        Path(__file__).parent,
        filters={
            "marked": marked,
            "moment": moment,
            "shortened": lambda value, whole: value if whole else shortened(value, VALUE_BEYOND),
        },
        names={
            "glimpse": cluster_glimpse,
            "replay_command": replay_command,
            "waive_command": lambda cluster: waive_command(cluster.id, cluster.flow),
            "WHOLE": WHOLE,
            "FOLLOWING_OPEN": FOLLOWING_OPEN,
            "METRIC_TITLES": METRIC_TITLES,
            "title_of": title_of,
            "kind_of": kind_of,
            "source_of": finding_source,
            "views": views,
            "stretches": stretches,
            "timeline_of": timeline_of,
            "words": words,
            "figures": figures,
            "bars_of": bars_of,
            "marks_of": marks_of,
            "noise": study,
            "noise_note": noise_note,
            "control_text": control_text,
        },
    )


def views(cluster: ClusterReport, *, whole: bool) -> list[ExemplarView]:
    """Prepare a cause's exemplars; beyond the first causes one is enough."""
    exemplars = cluster.exemplars if whole else cluster.exemplars[:1]
    return [_view(cluster, exemplar, whole=whole) for exemplar in exemplars]


def _view(cluster: ClusterReport, exemplar: Exemplar, *, whole: bool) -> ExemplarView:
    causes = [(signature_of(f), f) for f in exemplar.findings if f.after is None]
    own = tuple(finding for name, finding in causes if name == cluster.id)
    others = dict.fromkeys(name for name, _ in causes if name != cluster.id)
    following = tuple(f for f in exemplar.findings if f.after == cluster.id)
    rows = exemplar.rows if whole else _near(exemplar.rows)
    return ExemplarView(
        exemplar,
        own[:FOLLOWING_SHOWN],
        following[:FOLLOWING_SHOWN],
        max(0, len(own) - FOLLOWING_SHOWN) + max(0, len(following) - FOLLOWING_SHOWN),
        tuple(others)[:FOLLOWING_SHOWN],
        rows,
        exemplar.left_out + len(exemplar.rows) - len(rows),
    )


def _near(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Keep the rows around the first divergence."""
    first = next((k for k, row in enumerate(rows) if row.mark != "same"), 0)
    return rows[max(0, first - NEAR) : first + NEAR]


def words(finding: Finding, *, whole: bool) -> list[Piece]:
    """Compare what stood on both sides word by word."""
    legacy, graph = finding.legacy or "", finding.graph or ""
    if not whole:
        legacy, graph = excerpts(legacy, graph, VALUE_BEYOND)
    pieces = word_diff(legacy, graph)
    for k, (one, other) in enumerate(pairwise(pieces)):
        if (one.op, other.op) == ("gone", "new"):
            gone, new = told_apart(one.text, other.text)
            pieces[k : k + 2] = [Piece("gone", gone), Piece("new", new)]
    return pieces


def replay_command(captures: str, exemplar: Exemplar) -> str:
    """Return how an exchange is replayed; "" of a recorded stream, which has no request."""
    stack = exemplar.sides[1].removesuffix(" now")
    only = f"--stack {quote(stack)} --only {quote(exemplar.exchange)}"
    return f"cutover replay {quote(captures)} {only} -o replayed" if exemplar.request else ""


def stretches(rows: Sequence[Row]) -> Iterator[Stretch]:
    """Cut rows into stretches; the first that is not equal is where the streams part."""
    parted = False
    for mark, group in groupby(rows, key=_mark):
        stretch = tuple(group)
        differs = mark != "same"
        if differs or len(stretch) < FOLDED_FROM:
            yield Stretch(folded=False, rows=stretch, parts=differs and not parted)
        else:
            yield Stretch(folded=False, rows=stretch[:2], parts=False)
            yield Stretch(folded=True, rows=stretch[2:-2], parts=False)
            yield Stretch(folded=False, rows=stretch[-2:], parts=False)
        parted = parted or differs


def _mark(row: Row) -> Mark:
    return "same" if row.mark == "same" else "changed"


def figures(report: Report, *, served: bool) -> list[Figure]:
    """Group the latencies of runs that served, or of all others, by flow and metric."""
    wanted = (latency for latency in report.latency if latency.served is served)
    return [
        Figure(flow, metric, tuple(series))
        for (flow, metric), series in groupby(wanted, key=lambda x: (x.flow, x.metric))
    ]
