"""Changes: two reports held against each other, as Markdown and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from compare.report.legible import percent
from compare.report.markdown import code, plain

if TYPE_CHECKING:
    from compare.against import Against, Change

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


def _row(change: Change) -> str:
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
