"""Comparing captures and writing the reports: what `diff` and `demo` share."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from compare import Question, compare_captures, find_segments
from compare.report import Report, markdown, page, report_of
from compare.report.document import encode_report
from cutover.flows import SPECS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Format(StrEnum):
    """One way to write the report."""

    html = "html"
    md = "md"
    json = "json"


_WRITERS: Mapping[Format, Callable[[Report], bytes]] = {
    Format.html: lambda report: page(report).encode("utf-8", "replace"),
    Format.md: lambda report: markdown(report).encode("utf-8", "replace"),
    Format.json: encode_report,
}


def write_report(report: Report, out: Path, formats: Sequence[Format]) -> list[Path]:
    """Write a report in some formats; gives the files."""
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for wanted in dict.fromkeys(formats):
        path = out / f"report.{wanted.value}"
        path.write_bytes(_WRITERS[wanted](report))
        written.append(path)
    return written


def compare_and_write(captures: str, out: Path, share: Callable[[float], None]) -> Report:
    """Compare captures and write the report in all formats; `share` hears how much is read.

    Raises:
        CapturesUnreadable: there is nothing to read there.
    """
    size = max(sum(segment.size for segment in find_segments(captures)), 1)
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count
        share(read / size)

    tally = compare_captures(captures, Question(SPECS, "ignore"), advance)
    report = report_of(tally, captures, "ignore")
    write_report(report, out, list(Format))
    return report
