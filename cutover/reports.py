"""Comparing captures and writing the reports: what `diff` and `demo` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from compare import Question, compare_captures, find_segments
from compare.layers.prompt_sources import PromptMap, read_prompt_map
from compare.report import Report, markdown, page, report_of
from compare.report.document import encode_report, with_unknown_flows
from compare.rules import NO_RULES, Rules, read_rules
from compare.waivers import NO_WAIVERS, Waivers, read_waivers
from contract.errors import CutoverError
from contract.wire.dialect import built_in
from cutover.files import write_whole
from cutover.flows import SPECS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compare.layers.frames import Chunking
    from compare.tally import Tally
    from contract.flow import FlowSpec
    from cutover.plain_reports import AskedPlain

RULES = Path("diff.toml")
WAIVERS = Path("waivers.toml")
PROMPT_MAP = Path("prompts.map.json")


def known_flows(flows: Mapping[str, FlowSpec]) -> frozenset[str]:
    """Name all flows a report can speak of, but for dialects in files of their own."""
    return frozenset({*flows, *built_in()})


class Format(StrEnum):
    """One way to write the report."""

    html = "html"
    md = "md"
    json = "json"


class PlacesMisread(CutoverError):
    """The places given are neither captures nor two reports."""

    def __init__(self, places: int) -> None:
        super().__init__(f"one place of captures or two reports are due, not {places} places")


class NoPlaceForReport(CutoverError):
    """Captures were to be compared, and it was not said where the report goes."""

    def __init__(self) -> None:
        super().__init__("say where the report goes: --out DIR")


class NoiseMisplaced(CutoverError):
    """Noise was to be measured where there are no captures."""

    def __init__(self) -> None:
        super().__init__("noise is measured in captures: one place of them, and no dialect")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about captures, read from the command line and its files.

    `again` are captures of further legacy runs of the same messages, which show noise. `known` are
    the flows that are compared.
    """

    captures: str
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES
    waivers: Waivers = NO_WAIVERS
    processes: int | None = None
    again: tuple[str, ...] = ()
    known: Mapping[str, FlowSpec] = field(default_factory=lambda: SPECS)

    @property
    def question(self) -> Question:
        """What is asked of every segment."""
        return Question(self.known, self.chunking, self.rules)

    @property
    def flows(self) -> frozenset[str]:
        """Name the flows there are rules and waivers for."""
        return known_flows(self.known)

    @property
    def size(self) -> int:
        """How many bytes there are to read; raises `CapturesUnreadable`."""
        return sum(segment.size for segment in find_segments(self.captures))

    def tally(self, on_bytes: Callable[[int], None]) -> Tally:
        """Compare; raises `CapturesUnreadable` and `WorkerLost`."""
        return compare_captures(self.captures, self.question, on_bytes, self.processes)


def reported(asked: Asked | AskedPlain, tally: Tally) -> Report:
    """Write up what was compared, and name rules and waivers for flows nobody knows."""
    rules, waivers = asked.rules, asked.waivers
    report = report_of(tally, asked.captures, asked.chunking, rules, waivers)
    return with_unknown_flows(report, rules, waivers, asked.flows)


def rules_at(path: Path | None) -> Rules:
    """Read the rules named on the command line, or those that lie here; raises a refusal."""
    if path is None and not RULES.exists():
        return NO_RULES
    return read_rules(path or RULES)


def waivers_at(path: Path | None, today: date | None = None) -> Waivers:
    """Read the waivers named on the command line, or those that lie here; raises a refusal."""
    day = today or this_day()
    if path is None and not WAIVERS.exists():
        return Waivers(day)
    return Waivers(day, read_waivers(path or WAIVERS))


def prompt_map_at(path: Path | None) -> PromptMap:
    """Read the map named on the command line, or the one that lies here; raises a refusal."""
    if path is None and not PROMPT_MAP.exists():
        return PromptMap()
    return read_prompt_map(path or PROMPT_MAP)


def this_day() -> date:
    """Give today's date, UTC as everything in captures."""
    return datetime.now(UTC).date()


_WRITERS: Mapping[Format, Callable[[Report], bytes]] = {
    Format.html: lambda report: page(report).encode("utf-8", "replace"),
    Format.md: lambda report: markdown(report).encode("utf-8", "replace"),
    Format.json: encode_report,
}


def write_report(report: Report, out: Path, formats: Sequence[Format]) -> list[Path]:
    """Write a report in some formats, each file whole; gives the files."""
    files = {
        out / f"report.{wanted.value}": _WRITERS[wanted](report)
        for wanted in dict.fromkeys(formats)
    }
    out.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


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
