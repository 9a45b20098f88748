"""What an exchange becomes in captures: a line for each of its runs."""

import time
from collections.abc import Sequence

import msgspec

from cutover.errors import Failed, Outcome
from cutover.records import FrameRecord, PlayRecord, Role, RunRecord, json_text
from cutover.tape import Run, tape_record
from router.exchange import Served
from router.shadow import Played


def began(served: Served) -> int:
    """Return when an exchange began, in microseconds since 1970; to be asked on its loop."""
    return time.time_ns() // 1_000 - served.tape.stamp()


def served_lines(served: Served, at: int) -> list[RunRecord]:
    """Return the lines of the runs that served; the last one's stream ends as the client's did."""
    *failed, last = served.runs
    lines = [_line(served, one.run, one.run.ended, one.frames, at) for one in failed]
    frames = [*last.frames, *((last.run.now, frame) for frame in served.ending)]
    line = _line(served, last.run, served.outcome, frames, at)
    first, ended = (_since(served, one) for one in (served.first_text, served.ended))
    lines.append(msgspec.structs.replace(line, first_text_us=first, ended_us=ended))
    return [msgspec.structs.replace(lines[0], tape=tape_record(served.tape)), *lines[1:]]


def played_line(served: Served, played: Played, at: int) -> RunRecord:
    """Return the line of a shadow: its whole stream, and its calls by their place on the tape."""
    stamps = [at for at, _ in played.driver.frames]
    stamps += [played.run.now] * (len(played.frames) - len(stamps))
    frames = list(zip(stamps, played.frames, strict=True))
    return _line(served, played.run, played.outcome, frames, at)


def _line(
    served: Served, run: Run, outcome: Outcome | None, frames: Sequence[tuple[int, bytes]], at: int
) -> RunRecord:
    role: Role = run.role  # type: ignore[assignment]
    return RunRecord(
        exchange=served.id,
        flow=served.flow.name,
        path=served.request.path,
        role=role,
        policy=run.policy,
        stack=run.stack,
        assigned=served.assigned,
        why=served.why,
        served=served.served,
        at=at,
        outcome=outcome or Failed("stack_failed"),
        request=json_text(served.request.body),
        options=json_text(served.request.options),
        frames=tuple(FrameRecord.of(stamp, frame) for stamp, frame in frames),
        plays=_plays(served, run),
        nodes_us={name: round(seconds * 1e6) for name, seconds in run.nodes.items()},
        escaped=dict(run.escaped),
        versions=dict(served.versions),
    )


def _since(served: Served, moment: float | None) -> int | None:
    return None if moment is None else round((moment - served.began) * 1e6)


def _plays(served: Served, run: Run) -> tuple[PlayRecord, ...]:
    """Return a run's calls: where on the tape, and what it asked where that is not the same."""
    stored = [*served.tape.entries, *served.tape.dropped]
    places = {id(entry): place for place, entry in enumerate(stored)}
    plays = []
    for play in run.plays:
        place = places.get(id(play.entry))
        same = place is not None and play.call.canonical == play.entry.call.canonical
        asked = None if same else play.call.canonical.decode("utf-8", "replace")
        plays.append(PlayRecord(play.call.name, play.how, place, asked))
    return tuple(plays)
