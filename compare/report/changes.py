"""Changes: a newer report against an older one: what is new, gone, grown or shrunk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from compare.findings import Layer
from compare.input.damage import ILLEGIBLE
from compare.input.files import no_file
from compare.report.document import VERSION, ClusterReport, Report
from compare.report.markdown import code, plain
from contract.errors import CutoverError
from evidence.intervals import difference_interval
from evidence.pages.formats import percent
from evidence.tests import fisher, holm

METHOD = (
    "Fisher's exact test, two-sided; Newcombe's score interval of the difference of shares, 95 %; "
    "over all causes in both reports by Holm's method, 5 %"
)
SHOWN = 20
READABLE = (1, 2, VERSION)
Turn = Literal["new", "grown", "same", "shrunk", "gone"]
TURNS: tuple[Turn, ...] = ("new", "grown", "shrunk", "gone", "same")
Trend = Literal["worse", "no worse", "no data"]
_MARKS = {"no worse": "✅", "worse": "❌", "no data": "⚪"}


class ReportUnreadable(CutoverError):
    """A file is no report this version can read."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"cannot read a report from {file!r}: {why}")
        self.file = file
        self.why = why


class CauseChange(msgspec.Struct, frozen=True):
    """One cause in both reports: exchanges in the `older` and the `newer`, and their shares.

    `chance`: what is seen could be chance; `p` is Fisher's, `low` and `high` bound the difference
    of shares. A cause that moved within chance is `same`.
    """

    id: str
    flow: str
    layer: Layer
    path: str
    title: str
    turn: Turn
    older: int
    newer: int
    older_share: float
    newer_share: float
    p: float
    low: float
    high: float
    chance: bool
    waived: bool


class Against(msgspec.Struct, frozen=True):
    """Two reports compared; causes in the order new, grown, shrunk, gone, same."""

    v: int
    older: str
    newer: str
    trend: Trend
    reasons: tuple[str, ...]
    older_pairs: int
    newer_pairs: int
    changes: tuple[CauseChange, ...]
    method: str = METHOD


def read_report(path: Path) -> Report:
    """Read a report.json, or the one in a folder; raises `ReportUnreadable`."""
    file = path / "report.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise ReportUnreadable(str(path), "there is no report.json in it")
    try:
        if why := no_file(file):
            raise ReportUnreadable(str(path), why)
        report = msgspec.json.decode(file.read_bytes(), type=Report)
    except OSError as trouble:
        raise ReportUnreadable(str(path), trouble.strerror or str(trouble)) from trouble
    except ILLEGIBLE as trouble:
        raise ReportUnreadable(str(path), f"it is no report.json ({trouble})") from trouble
    if report.v not in READABLE:
        raise ReportUnreadable(str(path), f"version {report.v!r}, not {VERSION}")
    pairs = report.counts.pairs
    if not all(0 <= cluster.exchanges <= pairs for cluster in report.clusters):
        raise ReportUnreadable(str(path), f"a cause is not in 0 to {pairs} exchanges")
    return report


def against(older: Report, newer: Report) -> Against:
    """Compare two reports."""
    pairs = older.counts.pairs, newer.counts.pairs
    changes = _changes(older, newer) if all(pairs) else ()
    trend, reasons = _trend(older, newer, changes)
    return Against(VERSION, older.captures, newer.captures, trend, reasons, *pairs, changes)


def _changes(older: Report, newer: Report) -> tuple[CauseChange, ...]:
    before = {(cluster.flow, cluster.id): cluster for cluster in older.clusters}
    after = {(cluster.flow, cluster.id): cluster for cluster in newer.clusters}
    shown = before | after
    hits = [(_hits(before.get(key)), _hits(after.get(key))) for key in shown]
    pairs = [(older.counts.of_flow(flow), newer.counts.of_flow(flow)) for flow, _ in shown]
    p_values = [fisher(counts, among) for counts, among in zip(hits, pairs, strict=True)]
    found = [
        _change(cluster, counts, among, p, real=real)
        for cluster, counts, among, p, real in zip(
            shown.values(), hits, pairs, p_values, holm(p_values), strict=True
        )
    ]
    return tuple(
        sorted(
            found,
            key=lambda change: (
                TURNS.index(change.turn),
                change.waived,
                -max(change.newer_share, change.older_share),
                change.flow,
                change.id,
            ),
        )
    )


def _hits(cluster: ClusterReport | None) -> int:
    return 0 if cluster is None else cluster.exchanges


def _change(
    shown: ClusterReport,
    hits: tuple[int, int],
    pairs: tuple[int, int],
    p: float,
    *,
    real: bool,
) -> CauseChange:
    """Name what became of a cause; new and gone are so, even by chance."""
    older, newer = hits
    shares = older / pairs[0], newer / pairs[1]
    turn: Turn = "same"
    if not older:
        turn = "new"
    elif not newer:
        turn = "gone"
    elif real:
        turn = "grown" if shares[1] > shares[0] else "shrunk"
    low, high = difference_interval(hits, pairs)
    return CauseChange(
        id=shown.id,
        flow=shown.flow,
        layer=shown.layer,
        path=shown.path,
        title=shown.title,
        turn=turn,
        older=older,
        newer=newer,
        older_share=shares[0],
        newer_share=shares[1],
        p=p,
        low=low,
        high=high,
        chance=not real,
        waived=shown.waived and bool(newer),
    )


def _trend(
    older: Report, newer: Report, changes: tuple[CauseChange, ...]
) -> tuple[Trend, tuple[str, ...]]:
    empty = [
        f"the {name} report compared no pair"
        for name, report in (("older", older), ("newer", newer))
        if not report.counts.pairs
    ]
    if empty:
        return "no data", tuple(empty)
    counts = [
        f"{len(held)} {turn}"
        for turn in TURNS
        if (held := [change for change in changes if change.turn == turn])
    ]
    reasons = [", ".join(counts) if counts else "no cause in either report"]
    lacking = [
        f"the {name} report could not read enough of its captures"
        for name, report in (("older", older), ("newer", newer))
        if report.verdict.label == "incomplete"
    ]
    bad = sum(change.turn in {"new", "grown"} and not change.waived for change in changes)
    if bad:
        causes = "1 cause is" if bad == 1 else f"{bad} causes are"
        reasons = [f"{causes} new or grown and not waived", *reasons]
    trend: Trend = "worse" if bad else "no data" if lacking else "no worse"
    return trend, (*lacking, *reasons, *_cautions(older, newer))


def _cautions(older: Report, newer: Report) -> list[str]:
    """List what makes two reports hard to compare."""
    cautions: list[str] = []
    if older.chunking != newer.chunking:
        cautions.append(f"chunking was {older.chunking!r}, now it is {newer.chunking!r}")
    if [(r.says, r.where) for r in older.rules] != [(r.says, r.where) for r in newer.rules]:
        cautions.append("the rules are not the same")
    if older.findings_left_out or newer.findings_left_out:
        cautions.append("not every cause was kept: some called new or gone may be neither")
    if newer.counts.damaged or older.counts.damaged:
        cautions.append("captures were damaged: see the reports for what was passed over")
    return cautions


def changes_document(found: Against) -> bytes:
    """Write what changed as JSON."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def changes_markdown(found: Against) -> str:
    """Write what changed as Markdown; bounded, however many causes there are."""
    lines = [
        f"### {_MARKS[found.trend]} cutover diff of two reports: **{found.trend}**",
        "",
        *(f"- {plain(reason)}" for reason in found.reasons),
        f"- {found.older_pairs:,} pairs before, {found.newer_pairs:,} now",
        "",
    ]
    moved = [change for change in found.changes if change.turn != "same"]
    if moved:
        lines += [
            "| | before | now | difference of shares | layer | what | where | id |",
            "|---|--:|--:|---|---|---|---|---|",
            *map(_row, moved[:SHOWN]),
            "",
        ]
        if len(moved) > SHOWN:
            lines += [f"… and {len(moved) - SHOWN} more.", ""]
        lines.append(f"{found.method}. *?*: could be chance.")
    return "\n".join(lines).rstrip() + "\n"


def _row(change: CauseChange) -> str:
    cells = [
        f"**{change.turn}**{' *?*' if change.chance else ''}{' (waived)' if change.waived else ''}",
        f"{percent(change.older_share)} ({change.older:,})",
        f"{percent(change.newer_share)} ({change.newer:,})",
        f"{change.low * 100:+.1f} % … {change.high * 100:+.1f} %",
        change.layer,
        plain(change.title),
        code(f"{change.flow} {change.path}"),
        code(change.id),
    ]
    return f"| {' | '.join(cells)} |"
