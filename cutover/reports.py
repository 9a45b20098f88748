"""Comparisons as the commands ask for them, and reports written to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

from compare.captures import KnownParts, Question, compare_captures
from compare.input.recordings import Recordings
from compare.input.segments import find_segments
from compare.input.selection import EVERYTHING, Selection, selection_of
from compare.layers.prompt_sources import PromptMap, read_prompt_map
from compare.noise import Noise
from compare.recordings import PlainQuestion, compare_recordings
from compare.report import Report, markdown, page, report_of
from compare.report.document import encode_report, with_unknown_flows
from compare.rules import NO_RULES, Rules
from compare.sharing import HERE, Workers
from compare.streams.dialects import RecordedDialect, find_dialect
from compare.tally import Tally
from compare.waivers import NO_WAIVERS, Waivers, read_waivers
from contract.equality import Chunking
from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows import SPECS
from contract.wire import built_in
from effects.files import write_whole

T = TypeVar("T")

WAIVERS = Path("waivers.toml")
PROMPT_MAP = Path("prompts.map.json")
_STREAM_SIDES = 2


class Format(StrEnum):
    """One way to write a report."""

    html = "html"
    md = "md"
    json = "json"


class PlacesMisread(CutoverError):
    """The places given are neither captures nor two reports."""

    def __init__(self, places: int) -> None:
        super().__init__(f"one place of captures or two reports are due, not {places} places")


class NoPlaceForReport(CutoverError):
    """Captures are to be compared, and no folder is given for the report."""

    def __init__(self) -> None:
        super().__init__("say where the report goes: --out DIR")


class NoiseMisplaced(CutoverError):
    """Noise is to be measured where there are no captures."""

    def __init__(self) -> None:
        super().__init__("noise is measured in captures: one place of them, and no dialect")


class SchedulerMisplaced(CutoverError):
    """Workers of a cluster are to compare what is no captures."""

    def __init__(self) -> None:
        super().__init__("--scheduler compares captures: one place of them, and no dialect")


class SelectionMisplaced(CutoverError):
    """Exchanges are to be selected where there are no captures."""

    def __init__(self) -> None:
        super().__init__(
            "--since, --until and --configuration select from captures: one place of them, and no "
            "--dialect"
        )


class TwoSidesDue(CutoverError):
    """Plain streams are to be compared, but not two of them."""

    def __init__(self, places: int) -> None:
        super().__init__(f"--dialect compares two places, legacy and graph; {places} given")


@dataclass(frozen=True, slots=True)
class CaptureComparison:
    """A comparison of captures, as read from the command line and its files.

    `known` are the flows that are compared; `served` and `noise` are those of `Question`.
    """

    captures: str
    chunking: Chunking = "tape"
    rules: Rules = NO_RULES
    waivers: Waivers = NO_WAIVERS
    workers: Workers = HERE
    known: Mapping[str, FlowSpec] = field(default_factory=lambda: SPECS)
    selection: Selection = EVERYTHING
    served: Selection | None = None
    noise: Literal["", "alone", "joined"] = ""

    @property
    def flows(self) -> frozenset[str]:
        """The flows for which there may be rules and waivers."""
        return known_flows(self.known)

    @property
    def question(self) -> Question:
        """What is asked of the captures."""
        return Question(
            self.known,
            self.chunking,
            self.rules,
            self.selection,
            served=self.served,
            noise=self.noise,
        )

    @property
    def size(self) -> int:
        """Bytes to read; raises `CapturesUnreadable`."""
        days = self.question.days
        return sum(segment.size for segment in find_segments(self.captures, days=days))

    def tally(
        self, on_bytes: Callable[[int], None], known_parts: KnownParts | None = None
    ) -> Tally:
        """Compare; raises `CapturesUnreadable` and `WorkerLost`."""
        count, executor = self.workers.count, self.workers.executor
        return compare_captures(
            self.captures, self.question, on_bytes, count, executor, known_parts
        )


@dataclass(frozen=True, slots=True)
class StreamComparison:
    """A comparison of two places of plain recorded streams."""

    legacy: Recordings
    graph: Recordings
    dialect: RecordedDialect
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES
    waivers: Waivers = NO_WAIVERS

    @classmethod
    def of(
        cls, places: list[str], dialect: str, chunking: Chunking, rules: Rules, waivers: Waivers
    ) -> StreamComparison:
        """Find both places and the dialect; raises a refusal."""
        if len(places) != _STREAM_SIDES:
            raise TwoSidesDue(len(places))
        legacy, graph = (Recordings(Path(place)) for place in places)
        return cls(legacy, graph, find_dialect(dialect, SPECS), chunking, rules, waivers)

    @property
    def captures(self) -> str:
        """What is compared, as the report names it."""
        return f"{self.legacy.place} → {self.graph.place}"

    @property
    def flows(self) -> frozenset[str]:
        """The flows for which there may be rules and waivers."""
        return known_flows(SPECS) | {self.dialect.name}

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.legacy.size + self.graph.size

    def tally(self, on_bytes: Callable[[int], None]) -> Tally:
        """Compare; raises `CapturesUnreadable`."""
        question = PlainQuestion(self.dialect, self.chunking, self.rules)
        return compare_recordings(self.legacy, self.graph, question, on_bytes)


Comparison = CaptureComparison | StreamComparison


def known_flows(flows: Mapping[str, FlowSpec]) -> frozenset[str]:
    """Return all flows of reports, but for dialects in files of their own."""
    return frozenset({*flows, *built_in()})


def report_on(comparison: Comparison, tally: Tally, noise: Noise | None = None) -> Report:
    """Return the report on what was compared; it names rules and waivers for unknown flows."""
    rules, waivers = comparison.rules, comparison.waivers
    report = report_of(tally, comparison.captures, comparison.chunking, rules, waivers, noise)
    return with_unknown_flows(report, rules, waivers, comparison.flows)


def waivers_at(path: Path | None) -> Waivers:
    """Read the waivers of a file, by default `waivers.toml` if it exists; raises a refusal."""
    return Waivers(this_day(), _read(path, WAIVERS, read_waivers, {}))


def prompt_map_at(path: Path | None) -> PromptMap:
    """Read a map of prompts, by default `prompts.map.json` if it exists; raises a refusal."""
    return _read(path, PROMPT_MAP, read_prompt_map, PromptMap())


def _read(path: Path | None, default: Path, read: Callable[[Path], T], absent: T) -> T:
    return absent if path is None and not default.exists() else read(path or default)


def selection_at(since: str, until: str, configuration: str) -> Selection:
    """Read which exchanges to compare; durations count back from now.

    Raises `MomentRefused` and `SpanRefused`.
    """
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    return selection_of(since, until, configuration, now)


def this_day() -> date:
    """Return today's date in UTC, as in captures."""
    return datetime.now(UTC).date()


_WRITERS: Mapping[Format, Callable[[Report], bytes]] = {
    Format.html: lambda report: page(report).encode("utf-8", "replace"),
    Format.md: lambda report: markdown(report).encode("utf-8", "replace"),
    Format.json: encode_report,
}


def write_report(report: Report, out: Path, formats: Sequence[Format]) -> list[Path]:
    """Write a report in some formats, each file whole; returns the files."""
    files = {out / f"report.{one.value}": _WRITERS[one](report) for one in dict.fromkeys(formats)}
    out.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


def compare_and_write(captures: str, out: Path, on_share: Callable[[float], None]) -> Report:
    """Compare captures and write the report in all formats.

    `on_share` is called with the share of the captures that is read. Raises `CapturesUnreadable`.
    """
    comparison = CaptureComparison(captures)
    size = max(comparison.size, 1)
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count
        on_share(read / size)

    report = report_of(comparison.tally(advance), captures, comparison.chunking)
    write_report(report, out, list(Format))
    return report
