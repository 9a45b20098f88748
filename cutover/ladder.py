"""What the newest captures show: which calls of each stack are on the tape, and which bypass it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

import msgspec

from compare.input.captures import Exchange, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import Days, find_segments, read_lines, stretches
from contract.model import Chunk
from contract.operations import EXTERNAL_READ, MODEL_STREAM, TOOLS_RUN
from contract.records import EntryRecord, RunRecord
from router.config.schema import RemoteStackSettings, Settings
from router.stack import StackName

NEWEST: Final = 200
"""Exchanges of a flow that are looked at."""
_SEGMENTS: Final = 4
"""Files that are read for them at most, the newest first, the last stretch of each."""
_PERFORMED: Final = frozenset({TOOLS_RUN.port, EXTERNAL_READ.port})
"""Ports through which a stack does what a model requested."""

_chunk = msgspec.json.Decoder(Chunk)


class _Reply(msgspec.Struct):
    tool_call_id: str = ""


class _Sent(msgspec.Struct):
    """What of a call of the model shows which tools have run: the replies in its messages."""

    messages: tuple[_Reply, ...] = ()


_sent = msgspec.json.Decoder(_Sent)


@dataclass(slots=True)
class CallsSeen:
    """What the runs of one stack show.

    `runs` completed; `modelless` of them made no call of the model that is on the tape. Models
    requested `requested` tool calls that the stack answered, `taped` of which are on the tape;
    `bypassing` are the tools of the others, as far as none of a run's calls is on the tape.
    """

    runs: int = 0
    modelless: int = 0
    requested: int = 0
    taped: int = 0
    bypassing: Counter[str] = field(default_factory=Counter)

    def add(self, run: RunRecord, tape: Sequence[EntryRecord]) -> None:
        """Count one run, by the tape of its exchange."""
        if run.outcome != "completed":
            return
        entries = {entry.seq: entry for entry in tape}
        calls = [play for play in run.plays if (play.port, play.op) == _MODEL]
        requested, answered = dict[str, str](), set[str]()
        for play in calls:
            if play.entry in entries:
                entry = entries[play.entry]
                requested.update(_requested(entry))
                answered.update(_answered(play.args or entry.args))
        done = [requested[one] for one in requested if one in answered]
        taped = sum(play.port in _PERFORMED for play in run.plays)
        self.runs += 1
        self.modelless += not calls
        self.requested += len(done)
        self.taped += min(taped, len(done))
        if done and not taped:
            self.bypassing.update(done)


_MODEL = MODEL_STREAM.port, MODEL_STREAM.name


def _requested(entry: EntryRecord) -> Iterator[tuple[str, str]]:
    """Yield id and name of each tool call in a model's answer."""
    for item in entry.items:
        for call in _chunk.decode(item).tool_calls:
            if call.id and call.name:
                yield call.id, call.name


def _answered(args: msgspec.Raw) -> Iterator[str]:
    """Yield the ids of tool calls whose results a call of the model brings."""
    for message in _sent.decode(args).messages:
        if message.tool_call_id:
            yield message.tool_call_id


def calls_seen(found: Iterable[Exchange]) -> dict[StackName, CallsSeen]:
    """Count what exchanges show of each stack, served or in the shadow."""
    seen: dict[StackName, CallsSeen] = {name: CallsSeen() for name in get_args(StackName)}
    for runs in found:
        tape = next((run.tape for run in runs if run.tape), ())
        for run in runs:
            if run.stack in seen and run.role != "replay":
                seen[run.stack].add(run, tape)
    return {name: each for name, each in seen.items() if each.runs}


def newest_exchanges(place: str, flow: str) -> list[Exchange]:
    """Read the newest captured exchanges of a flow; raises `CapturesUnreadable`."""
    newest: list[Exchange] = []
    own = [one for one in find_segments(place, days=Days(flow)) if f"flow={flow}/" in one.url]
    for segment in reversed(own[-_SEGMENTS:]):
        last = stretches(segment)[-1]
        read = exchanges(read_lines(last), last.url)
        newest = [*(one.runs for one in read if not isinstance(one, Damage)), *newest]
        if len(newest) >= NEWEST:
            break
    return newest[-NEWEST:]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one stack, in a sentence, and the line that takes it one rung up, or "".

    `called`: calls of its model are on the tape.
    """

    stack: StackName
    called: bool
    seen: str
    lift: str


def observe(name: str, settings: Settings) -> tuple[Observation, ...]:
    """Return what the newest captures of a flow show; none where nothing was captured yet."""
    try:
        found = newest_exchanges(settings.captures.path, name)
    except CapturesUnreadable:  # no capture yet, or `captures` says why
        return ()
    return tuple(
        Observation(
            stack,
            seen.modelless < seen.runs,
            _sentence(stack, seen, settings),
            _lift(stack, seen, settings),
        )
        for stack, seen in calls_seen(found).items()
    )


def _sentence(stack: StackName, seen: CallsSeen, settings: Settings) -> str:
    with_model = seen.runs - seen.modelless
    text = f"calls of the model are on the tape in {with_model} of {seen.runs} runs"
    if seen.modelless and isinstance(settings.stacks.place(stack), RemoteStackSettings):
        text += ", and the others are not replayed"
    if not seen.requested:
        return text
    text += f"; of {seen.requested} tool calls {seen.taped} are on the tape"
    if names := ", ".join(tool for tool, _ in seen.bypassing.most_common(5)):
        text += f"; beside it: {names}, which a shadow, a takeover or a replay runs again"
    return text


def _lift(stack: StackName, seen: CallsSeen, settings: Settings) -> str:
    """Return what would put on the tape what bypasses it; "" where nothing was seen to."""
    place = settings.stacks.place(stack)
    remote, gateway = isinstance(place, RemoteStackSettings), settings.gateway
    if seen.modelless == seen.runs:
        if not remote:
            return (
                "CutoverTransport in its client of the model (wrapping.md): its calls are made once"
            )
        switch = "" if gateway.enabled else "[gateway] enabled = true, and "
        return f"{switch}base_url of its OpenAI client at the router (gateway.md): one model bill"
    if seen.bypassing:
        switch = "[gateway] effects = true, and " if remote and not gateway.effects else ""
        tools = "@effect at these tools (effects.md), or their MCP server's address (mcp.md)"
        return f"{switch}{tools}: they run once"
    return ""
