"""The files of a report: HTML for people, Markdown for a pull request, JSON and JUnit for CI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from compare.report.document import Report
from compare.report.page import render
from cutover.errors import Unusable


def read_report(path: Path) -> Report:
    """Return the report in a `report.json`, or in a folder's; raises `Unusable`."""
    try:
        content = (path / "report.json" if path.is_dir() else path).read_bytes()
        return msgspec.json.decode(content, type=Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise Unusable(where=path, reason=str(error)) from error


def files(report: Report) -> Mapping[str, bytes]:
    """Return the content of each file by its name."""
    templates = ("report.html", "report.md", "junit.xml")
    pages = {name: render(f"{name}.j2", report=report) for name in templates}
    schema = msgspec.json.encode(msgspec.json.schema(Report))
    return {
        **{name: page.encode("utf-8", "replace") for name, page in pages.items()},
        "report.json": msgspec.json.format(msgspec.json.encode(report)),
        "report.schema.json": msgspec.json.format(schema),
    }


def summary(report: Report) -> str:
    """Return the verdict, the heaviest causes and what to do next, for a terminal."""
    return render("summary.txt.j2", report=report).strip()
