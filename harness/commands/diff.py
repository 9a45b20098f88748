"""`cutover diff`: captures, or recorded streams of two folders, compared and reported."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from compare.differences import Rules, differences
from compare.pairs import Rows, rows_of
from compare.report.document import Report, compared_with, files, make_report, summary
from compare.segments import Batch, LineHead, Map, batches
from compare.verdict import Read
from compare.waivers import Waiver
from cutover.errors import CutoverError, Failed, Outcome, Unusable
from cutover.flow import Flow
from cutover.records import FrameRecord, RecordDamaged, RunRecord, decode
from cutover.wire import End, Piece
from harness.config import Settings
from harness.services import dialect, flow_of
from router.captures import Store
from router.captures.reader import file_lines
from router.services import ServiceFlow

FILES_AT_ONCE = 8
"""Files whose heads are read at a time."""
RECORDINGS, SUFFIXES = "recordings", frozenset({".sse", ".ndjson", ".jsonl", ".txt"})
"""The flow of recorded streams, and the names of their files."""


def opened(captures: str) -> Store:
    """Return captures that are there; raises `Unusable`."""
    if "://" not in captures and not Path(captures).is_dir():
        raise Unusable(where=captures, reason="there is no such folder")
    try:
        return Store(captures)
    except ValueError as error:
        raise Unusable(where=captures, reason=str(error)) from error


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared, as it is sent to workers; `flows` are those to be read, () for all."""

    captures: Sequence[str]
    settings: Settings
    flows: Sequence[str]
    rules: Rules
    aa: bool
    forks: bool = False

    def lines(self, file: str, damage: Counter[str]) -> Iterator[tuple[LineHead, bytes]]:
        """Yield the lines of a file of `files`; count what cannot be read."""
        place, _, name = file.partition(" ")
        for line in file_lines(Store(self.captures[int(place)]), name, damage):
            try:
                yield decode(line, LineHead), line
            except RecordDamaged:
                damage["foreign"] += 1

    @property
    def files(self) -> list[str]:
        """The files of lines, each with the place of its captures; raises `Unusable`."""
        found: list[str] = []
        for place, one in enumerate(self.captures):
            names = opened(one).names()
            flows = {name: name.removeprefix("flow=").partition("/")[0] for name in names}
            known = (name for name in names if not self.flows or flows[name] in self.flows)
            found += (f"{place} {name}" for name in known)
        return found


def report_on(
    rows: Rows, read: Read, waivers: Mapping[str, Waiver], older: Report | None, out: Path
) -> tuple[int, str]:
    """Write the report's files into a folder; return the exit status, and a summary in lines."""
    now = datetime.now(UTC)
    report = make_report(
        rows.pairs,
        rows.exchanges,
        read,
        made_at=round(now.timestamp() * 1e6),
        today=now.date(),
        waivers=waivers,
        exemplars=rows.exemplars,
    )
    report = report if older is None else compared_with(report, older)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files(report).items():
        (out / name).write_bytes(content)
    *lines, follows = summary(report).splitlines()
    return report.verdict.status, "\n".join([*lines, f"{out / 'report.html'}", follows])


def compare_captures(job: Comparison, since: int, until: int, mapped: Map) -> tuple[Rows, Read]:
    """Return the rows of the exchanges that began in a time, in microseconds since 1970.

    Raises `Unusable` for captures that cannot be opened.
    """
    files, rows, damage = job.files, Rows(), Counter[str]()
    parts = [files[at : at + FILES_AT_ONCE] for at in range(0, len(files), FILES_AT_ONCE)]
    heads: list[tuple[str, list[LineHead]]] = []
    for some, damaged in mapped(partial(_heads, job), parts):
        heads += some
        damage += damaged
    job = changed(job, forks=any(head.role == "fork" for _, some in heads for head in some))
    for some, damaged in mapped(partial(_rows, job), batches(heads, since, until)):
        rows.add(some)
        damage += damaged
    lines = sum(len(one) for _, one in heads)
    return rows, Read(files=len(files), lines=lines, damage=dict(damage))


def _heads(
    job: Comparison, files: Sequence[str]
) -> tuple[list[tuple[str, list[LineHead]]], Counter[str]]:
    damage: Counter[str] = Counter()
    return [(one, [head for head, _ in job.lines(one, damage)]) for one in files], damage


def _rows(job: Comparison, batch: Batch) -> tuple[Rows, Counter[str]]:
    """Return the rows of some exchanges; what their heads did not show is damage."""
    damage: Counter[str] = Counter()
    flows = {name: flow_of(name, job.settings) for name in job.settings.flows}
    compare = partial(differences, rules=job.rules)
    return rows_of(_records(job, batch, damage), flows, compare, aa=job.aa), damage


def _records(job: Comparison, batch: Batch, damage: Counter[str]) -> Iterator[RunRecord]:
    seen: set[tuple[str, str, str]] = set()
    # The newest first: a stack that was mended is replayed again, and that run counts.
    for file in sorted(batch.files, key=lambda one: one.rpartition("/")[2], reverse=True):
        for head, line in job.lines(file, Counter()):
            run = head.exchange, head.role, head.stack
            if job.forks and head.role in {"shadow", "replay"}:
                continue  # forks are compared, and nothing is mixed with them
            if run in seen:
                damage["duplicate"] += 1
            elif head.exchange in batch.exchanges:
                seen.add(run)
                try:
                    yield decode(line, RunRecord)
                except RecordDamaged:
                    damage["foreign"] += 1
    # Files may go between the first pass and this one.
    damage["foreign"] += len(batch.exchanges - {exchange for exchange, _, _ in seen})


def compare_recordings(
    folders: Sequence[str], dialects: Sequence[str], rules: Rules
) -> tuple[Rows, Read]:
    """Return the rows of recorded streams in two folders; raises `Unusable`."""
    if len(folders) != 2 or len(dialects) > 2 or not all(Path(one).is_dir() for one in folders):  # noqa: PLR2004
        raise Unusable(where="--dialect", reason="compares the streams in two folders, OLD NEW")
    flow, other = (
        ServiceFlow(RECORDINGS, {}, dialect(name)) for name in (dialects[0], dialects[-1])
    )
    runs = [
        *recorded(Path(folders[0]), "legacy", flow),
        *recorded(Path(folders[1]), "graph", other),
    ]
    graph_flow = None if dialects[0] == dialects[-1] else other
    compare = partial(differences, rules=rules, graph_flow=graph_flow)
    rows = rows_of(runs, {RECORDINGS: flow}, compare)
    lost = {"not_played": "lines_missing"}  # a recording that one folder lacks
    rows.pairs = [replace(one, why_not=lost.get(one.why_not, one.why_not)) for one in rows.pairs]
    return rows, Read(files=len(runs), lines=len(runs), damage={})


def recorded(folder: Path, stack: str, flow: Flow) -> Iterator[RunRecord]:
    """Yield the runs of a folder's streams; those of one name, its suffix apart, are a pair.

    `flow` reads them as the router reads a service's answer. Raises `OSError`.
    """
    for path in sorted(one for one in folder.rglob("*") if one.suffix in SUFFIXES):
        body = path.read_bytes()
        yield RunRecord(
            exchange=path.relative_to(folder).with_suffix("").as_posix(),
            flow=flow.name,
            path="",
            role="serving" if stack == "legacy" else "replay",
            policy="live",
            stack=stack,
            assigned="legacy",
            served="legacy",
            at=0,
            outcome=_outcome(body, flow),
            request="{}",
            options="null",
            frames=(FrameRecord.of(0, body),),
        )


def _outcome(body: bytes, flow: Flow) -> Outcome:
    framing = flow.framer()
    try:
        for event in (Piece(body), End()):
            framing.read(event)
    except CutoverError as error:
        return Failed("stack_failed", detail=str(error))
    return framing.ending
