"""The page: one HTML file that needs nothing but itself."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from compare.clusters import Exemplar, Mark, Row
from compare.findings import LAYERS, Finding, kind_of, signature_of
from compare.report.legible import duration, moment, percent, visible
from compare.report.timeline import bars_of, marks_of, timeline_of
from compare.report.titles import TITLES
from compare.words import word_diff

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compare.report.document import ClusterReport, Report
    from compare.report.latency import Latency

STREAMS_SHOWN = 40
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


class Figure(NamedTuple):
    """All series of one flow and metric, on one axis."""

    flow: str
    metric: str
    series: tuple[Latency, ...]


def page(report: Report) -> str:
    """Render the report; every value is escaped, nothing is loaded from anywhere."""
    return _environment().get_template("page.html.j2").render(report=report, layers=LAYERS)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"duration": duration, "moment": moment, "percent": percent}
    environment.globals |= {
        "STREAMS_SHOWN": STREAMS_SHOWN,
        "METRIC_TITLES": METRIC_TITLES,
        "TITLES": TITLES,
        "kind_of": kind_of,
        "own_findings": own_findings,
        "stretches": stretches,
        "timeline_of": timeline_of,
        "word_diff": word_diff,
        "figures": figures,
        "bars_of": bars_of,
        "marks_of": marks_of,
    }
    return environment


def _shown(value: object) -> object:
    # Type and not isinstance: text that is markup already (macros) stays as it is.
    return visible(value) if type(value) is str else value


def own_findings(cluster: ClusterReport, exemplar: Exemplar) -> list[Finding]:
    """List an exemplar's findings, those of the cluster first, then what follows and the rest."""
    return sorted(
        exemplar.findings,
        key=lambda f: (f.after is not None or signature_of(f) != cluster.id, f.after != cluster.id),
    )


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


def figures(report: Report) -> list[Figure]:
    """Group latencies by flow and metric."""
    return [
        Figure(flow, metric, tuple(series))
        for (flow, metric), series in groupby(report.latency, key=lambda x: (x.flow, x.metric))
    ]
