"""Changes: two reports held against each other, as Markdown and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from compare.findings import Layer
from compare.input.damage import ILLEGIBLE
from compare.report.document import VERSION, ClusterReport, Report
from compare.report.formats import percent
from compare.report.markdown import code, plain
from contract.errors import CutoverError
from evidence import difference_interval, fisher, holm

METHOD = (
    "Fisher's exact test, two-sided; Newcombe's score interval of the difference of shares, 95 %; "
    "over all causes in both reports by Holm's method, 5 %"
)
SHOWN = 20
_MARKS = {"no worse": "✅", "worse": "❌", "no data": "⚪"}


def changes_markdown(found: Against) -> str:
    """Write what changed as Markdown; bounded, however many causes there are."""
    lines = [
        f"### {_MARKS[found.trend]} cutover diff of two reports: **{found.trend}**",
        "",
        *(f"- {plain(reason)}" for reason in found.reasons),
        f"- {found.older_pairs:,} pairs before, {found.newer_pairs:,} now",
        "",
        *_table(found),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(found: Against) -> list[str]:
    moved = [change for change in found.changes if change.turn != "same"]
    if not moved:
        return []
    lines = [
        "| | before | now | difference of shares | layer | what | where | id |",
        "|---|--:|--:|---|---|---|---|---|",
        *map(_row, moved[:SHOWN]),
        "",
    ]
    if len(moved) > SHOWN:
        lines += [f"… and {len(moved) - SHOWN} more.", ""]
    return [*lines, f"{found.method}. *?*: could be chance."]


def _row(change: CauseChange) -> str:
    cells = [
        f"**{change.turn}**{' *?*' if change.chance else ''}{' (waived)' if change.waived else ''}",
        f"{percent(change.older_share)} ({change.older:,})",
        f"{percent(change.newer_share)} ({change.newer:,})",
        f"{_signed(change.low)} … {_signed(change.high)}",
        change.layer,
        plain(change.title),
        code(f"{change.flow} {change.path}"),
        code(change.id),
    ]
    return f"| {' | '.join(cells)} |"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f} %"


def changes_document(found: Against) -> bytes:
    """Write what changed as JSON."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


READABLE = (1, VERSION)
Turn = Literal["new", "grown", "same", "shrunk", "gone"]
TURNS: tuple[Turn, ...] = ("new", "grown", "shrunk", "gone", "same")
Trend = Literal["worse", "no worse", "no data"]


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
    """Hold two reports against each other."""
    pairs = older.counts.pairs, newer.counts.pairs
    changes = _changes(older, newer) if all(pairs) else ()
    trend, reasons = _trend(older, newer, changes)
    return Against(
        VERSION, older.captures, newer.captures, trend, reasons, pairs[0], pairs[1], changes
    )


def _changes(older: Report, newer: Report) -> tuple[CauseChange, ...]:
    before = {(cluster.flow, cluster.id): cluster for cluster in older.clusters}
    after = {(cluster.flow, cluster.id): cluster for cluster in newer.clusters}
    found = [
        _change((before.get(key), after.get(key)), (older.counts.pairs, newer.counts.pairs))
        for key in before | after
    ]
    real = holm([change.p for change in found])
    turned = [_turned(change, real=r) for change, r in zip(found, real, strict=True)]
    return tuple(sorted(turned, key=_order))


def _order(change: CauseChange) -> tuple[int, bool, float, str, str]:
    return (
        TURNS.index(change.turn),
        change.waived,
        -max(change.newer_share, change.older_share),
        change.flow,
        change.id,
    )


def _change(
    sides: tuple[ClusterReport | None, ClusterReport | None], pairs: tuple[int, int]
) -> CauseChange:
    older, newer = (side.exchanges if side else 0 for side in sides)
    shown = sides[1] or sides[0]
    assert shown is not None  # noqa: S101 (a key of one of the two)
    low, high = difference_interval((older, newer), pairs)
    return CauseChange(
        id=shown.id,
        flow=shown.flow,
        layer=shown.layer,
        path=shown.path,
        title=shown.title,
        turn="same",
        older=older,
        newer=newer,
        older_share=older / pairs[0],
        newer_share=newer / pairs[1],
        p=fisher((older, newer), pairs),
        low=low,
        high=high,
        chance=True,
        waived=sides[1].waived if sides[1] else False,
    )


def _turned(change: CauseChange, *, real: bool) -> CauseChange:
    """Name what became of a cause; new and gone are so whatever chance says of it."""
    turn: Turn = "same"
    if not change.older:
        turn = "new"
    elif not change.newer:
        turn = "gone"
    elif real:
        turn = "grown" if change.newer_share > change.older_share else "shrunk"
    return msgspec.structs.replace(change, turn=turn, chance=not real)


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
    bad = [change for change in changes if change.turn in {"new", "grown"} and not change.waived]
    counts = [
        f"{len(held)} {turn}"
        for turn in TURNS
        if (held := [change for change in changes if change.turn == turn])
    ]
    reasons = [", ".join(counts) if counts else "no cause in either report"]
    if bad:
        reasons = [f"{_counted(len(bad), 'cause')} new or grown and not waived", *reasons]
    return "worse" if bad else "no worse", (*reasons, *_cautions(older, newer))


def _cautions(older: Report, newer: Report) -> list[str]:
    """List what makes two reports hard to compare."""
    said: list[str] = []
    if older.chunking != newer.chunking:
        said.append(f"chunking was {older.chunking!r}, now it is {newer.chunking!r}")
    if [(r.says, r.where) for r in older.rules] != [(r.says, r.where) for r in newer.rules]:
        said.append("the rules are not the same")
    if older.findings_left_out or newer.findings_left_out:
        said.append("not every cause was kept: some called new or gone may be neither")
    if newer.counts.damaged or older.counts.damaged:
        said.append("captures were damaged: see the reports for what was passed over")
    return said


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{' is' if count == 1 else 's are'}"
