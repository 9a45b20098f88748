"""Outcomes: what became of each exchange for its client, by the stack it was assigned to.

Assigned, not served: a stack answers for the requests that were rolled to it, whoever saved them
(intention to treat). Live and offline the same functions count.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from operator import sub
from typing import Final, Literal, NamedTuple

import msgspec

from contract.errors import FaultCode
from contract.flow import FlowSpec
from contract.operations import (
    MODEL_STREAM,
    OPERATIONS,
    TOOLS_LIST,
    TOOLS_RUN,
    Operation,
)
from contract.records import EntryRecord, Outcome, RunRecord, Score
from contract.wire import NO_JSON, WireReader

Fallback = Literal["", "breaker", "fallback", "takeover"]
Frames = Sequence[tuple[int, str]]
"""Frames and when each was produced, in microseconds since the exchange began."""

TEXT_FRAMES: Final = 1_000
"""Frames in which the first text is looked for."""
CLIENT_LEFT: Final = frozenset({"client_left", "client_unread"})
"""Codes of runs that ended because the client was gone, or did not read."""
FAILED: Final = frozenset({"failed", "truncated", "timeout"})
"""Ends that are errors."""
BILLION: Final = 1_000_000_000
OTHERS: Final = "other"
MOST_GROUPS: Final = 300
MOST_CODES: Final = 64
"""Different codes of one group, of each measure, that are told apart."""
UNREAD: Final = -1
"""The stamp of a first text that is to be looked for."""

_NOT_TOLD: Final[frozenset[FaultCode]] = frozenset({"effect_in_doubt", "deadline"})
_UNKNOWN: Final = {
    key: msgspec.json.encode(row.unknown)[:-1]
    for key, row in OPERATIONS.items()
    if row.unknown is not None
}
"""How the last item of a write begins whose outcome nobody knows, by port and operation."""

Measure = tuple[str, ...]
"""What is counted, and by which code: `("errors", "stall")`."""
TimeMeasure = Literal["first_frame", "first_text", "longest_gap", "last_frame"]
TIMES: Final[tuple[TimeMeasure, ...]] = ("first_frame", "first_text", "longest_gap", "last_frame")


class ToolUse(NamedTuple):
    """How often a tool was called, and how many of the calls ended in an error."""

    calls: int
    failures: int


_UNUSED: Final = ToolUse(0, 0)


class ExchangeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange as its client had it; its shadow is no part of it.

    `began` is in microseconds since the epoch; other times are microseconds since the exchange
    began, or went on after a pause: the first frame, the first text, the last frame; comments are
    no frames. `longest_gap` is the longest wait between two frames, in microseconds. `end` is how
    the last run that served it ended, `code` the code of its failure or refusal. `lost` is what a
    fallback cost, in microseconds. `conversation` is what it belongs to, "" where its request names
    none. Tokens and `cost` are those of live calls; `cost` is None where no price is known.
    `tools` is by the name of the tool, `other` where it was not offered: a model may name any.
    `in_doubt` names the writes that began and whose outcome nobody knows: they may have happened.
    `reason`, `assigned_by`, `bucket` and `config` are those of its record: what decided the
    assignment or, after a failure, why another stack served; what decided the assignment, which
    records of earlier versions do not say after a failure; where its key lies among 100 000
    buckets, -1 where that is unknown; the version of the settings. `fingerprint` is that of the
    assigned stack's code, "" where that stack did not run.
    """

    exchange: str
    flow: str
    assigned: str
    served: str
    began: int
    end: Outcome
    reason: str = ""
    assigned_by: str = ""
    bucket: int = -1
    config: str = ""
    fingerprint: str = ""
    code: str = ""
    conversation: str = ""
    fallback: Fallback = ""
    lost: int = 0
    client_left: bool = False
    first_frame: int | None = None
    first_text: int | None = None
    longest_gap: int | None = None
    last_frame: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    tools: Mapping[str, ToolUse] = {}
    in_doubt: tuple[str, ...] = ()
    feedback: Score | None = None

    @property
    def tool_calls(self) -> int:
        """How many tool calls were made."""
        return sum(use.calls for use in self.tools.values())

    @property
    def tool_failures(self) -> int:
        """How many of them ended in an error."""
        return sum(use.failures for use in self.tools.values())


class Group(NamedTuple):
    """Exchanges that are counted together: by the stack they were assigned to, and who served."""

    flow: str
    assigned: str
    served: str


def counts_of(one: ExchangeOutcome) -> list[tuple[Measure, int]]:
    """Return what an exchange adds to which counts, in whole numbers.

    `lost` is in microseconds, `cost` in billionths of the currency.
    """
    counts: list[tuple[Measure, int]] = [(("exchanges", one.end), 1)]
    if one.end in FAILED:
        counts.append((("errors", one.code or one.end), 1))
    elif one.end == "refused":
        counts.append((("refusals", one.code), 1))
    if one.fallback:
        counts.append((("fallbacks", one.fallback, one.reason), 1))
        counts.append((("lost",), one.lost))
    if one.client_left:
        counts.append((("client_left",), 1))
    if one.prompt_tokens or one.completion_tokens:
        counts.append((("prompt_tokens",), one.prompt_tokens))
        counts.append((("completion_tokens",), one.completion_tokens))
    if one.cost is not None and isfinite(cost := one.cost * BILLION):
        counts.append((("cost",), round(cost)))
    for tool, use in one.tools.items():
        counts.append((("tool_calls", tool), use.calls))
        counts.append((("tool_failures", tool), use.failures))
    counts += [(("in_doubt", name), 1) for name in one.in_doubt]
    if one.feedback is not None:
        counts.append((("feedback", str(one.feedback)), 1))
    return counts


@dataclass(slots=True)
class GroupTotals:
    """The counts of a group, and its times in microseconds, 8 bytes each."""

    counts: Counter[Measure] = field(default_factory=Counter)
    times: dict[TimeMeasure, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in TIMES}
    )

    def add(self, one: ExchangeOutcome) -> None:
        """Count an exchange."""
        for measure, amount in counts_of(one):
            self._count(measure, amount)
        for name, series in self.times.items():
            if (at := getattr(one, name)) is not None:
                series.append(at)

    def merge(self, other: GroupTotals) -> None:
        """Take in what was counted elsewhere."""
        for measure, amount in other.counts.items():
            self._count(measure, amount)
        for name, series in other.times.items():
            self.times[name].extend(series)

    def total(self, *measure: str) -> int:
        """Add up the counts whose measure begins so."""
        return sum(
            count for known, count in self.counts.items() if known[: len(measure)] == measure
        )

    def _count(self, measure: Measure, amount: int) -> None:
        counts = self.counts
        known = counts.get(measure)
        if known is None and len(measure) > 1:
            alike = sum(other[:-1] == measure[:-1] for other in counts)
            if alike >= MOST_CODES:
                measure = (*measure[:-1], OTHERS)
                known = counts.get(measure)
        counts[measure] = (known or 0) + amount


@dataclass(slots=True)
class OutcomeTotals:
    """What became of exchanges, by flow, assigned and served stack; merged in any order."""

    groups: dict[Group, GroupTotals] = field(default_factory=dict)

    def add(self, one: ExchangeOutcome) -> None:
        """Count an exchange."""
        self._group(Group(one.flow, one.assigned, one.served)).add(one)

    def merge(self, other: OutcomeTotals) -> None:
        """Take in what was counted elsewhere."""
        for group, totals in other.groups.items():
            self._group(group).merge(totals)

    def by_assigned(self) -> dict[Group, GroupTotals]:
        """Return the totals of each flow and assigned stack, whoever served: `served` is ""."""
        return self._joined({group: group._replace(served="") for group in self.groups})

    def by_served(self) -> dict[Group, GroupTotals]:
        """Return the totals of each flow and the stack that served: `assigned` is ""."""
        return self._joined({group: group._replace(assigned="") for group in self.groups})

    def _joined(self, names: Mapping[Group, Group]) -> dict[Group, GroupTotals]:
        found: dict[Group, GroupTotals] = {}
        for group, totals in sorted(self.groups.items()):
            found.setdefault(names[group], GroupTotals()).merge(totals)
        return found

    def _group(self, group: Group) -> GroupTotals:
        if group not in self.groups and len(self.groups) >= MOST_GROUPS:
            group = Group(OTHERS, OTHERS, OTHERS)
        return self.groups.setdefault(group, GroupTotals())


class _ToolAnswer(msgspec.Struct):
    """The one field of a tool's answer that says whether it failed."""

    error: str | None = None


class _ToolName(msgspec.Struct):
    """The one field of an offered tool that says which it is."""

    name: str


class _OfferedNames(msgspec.Struct):
    """The names in a result of `tools.list`."""

    tools: tuple[_ToolName, ...]


_tool_answer = msgspec.json.Decoder(_ToolAnswer).decode
_offered_names = msgspec.json.Decoder(_OfferedNames).decode


def outcome_of(
    runs: Sequence[RunRecord],
    spec: FlowSpec,
    feedback: Score | None = None,
    *,
    first_text: int | None = UNREAD,
    conversation: str | None = None,
) -> ExchangeOutcome | None:
    """Return what became of an exchange, from the records of its runs; None without a serving run.

    `first_text` is the stamp of the first frame with text and `conversation` the name of the
    conversation; what is known already is not read again.
    """
    served = [run for run in runs if run.role in {"serving", "fallback"}]
    if not served or served[0].role != "serving":
        return None
    first, last = served[0], served[-1]
    frames, start = _client_frames(served), start_of(served)
    comment = ":" if spec.dialect.framing == "sse" else None
    if first_text == UNREAD:
        first_text = _text_stamp([it for it in frames if it[1][:1] != comment], spec)
    stamps = [at for at, frame in frames if frame[:1] != comment]
    error = last.error
    prompt_tokens, completion_tokens = _tokens(served)
    costs = [run.cost for run in served if run.cost is not None]
    return ExchangeOutcome(
        exchange=first.exchange,
        flow=first.flow,
        assigned=first.assigned,
        served=first.served,
        began=first.began,
        end=last.outcome,
        reason=first.reason,
        assigned_by=first.assigned_by or first.reason,
        bucket=first.bucket,
        config=first.config,
        fingerprint=first.code if first.stack == first.assigned else "",
        code=error.code if error is not None and last.outcome != "completed" else "",
        conversation=_conversation(first, spec) if conversation is None else conversation,
        fallback=_fallback(served),
        lost=first.lost_us,
        client_left=last.client_left or (error is not None and error.code in CLIENT_LEFT),
        first_frame=stamps[0] - start if stamps else None,
        first_text=None if first_text is None else first_text - start,
        longest_gap=max(map(sub, stamps[1:], stamps), default=None),
        last_frame=stamps[-1] - start if stamps else None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=sum(costs) if costs else None,
        tools=_tools(served),
        in_doubt=_in_doubt(served),
        feedback=feedback,
    )


def _client_frames(served: Sequence[RunRecord]) -> Frames:
    """Return the frames that the client of an exchange got, over a takeover and comments too.

    None where those at the beginning were not recorded. Of a client that has left, the last ones
    may not have reached it.
    """
    first = served[0]
    frames: Frames = first.frames
    if len(served) == 1:
        if skipped := _skipped(first):
            frames = frames[skipped:]
    else:
        second, before = served[-1], first.frames[_skipped(first) : served[-1].sent]
        if _taken_over(served) and not before:
            return ()
        frames = (*before, *second.frames[_skipped(second) :])
    return frames


def _text_stamp(frames: Frames, spec: FlowSpec) -> int | None:
    """Return the stamp of the first frame with text of the answer; None where there is none."""
    reader = WireReader(spec.decoder)
    at = 0
    for at, frame in islice(frames, TEXT_FRAMES):
        if any(event.text() for event in reader.feed(frame.encode())):
            return at
    return at if any(event.text() for event in reader.flush()) else None


def _skipped(run: RunRecord) -> int:
    return run.sent if run.skipped is None else run.skipped


def _fallback(served: Sequence[RunRecord]) -> Fallback:
    first = served[0]
    if len(served) > 1:
        return "takeover" if _taken_over(served) else "fallback"
    return "breaker" if first.served != first.assigned else ""


def _taken_over(served: Sequence[RunRecord]) -> bool:
    """Whether the client had frames of the first run when the second one went on."""
    first, second = served[0], served[-1]
    # Runs that go on after a pause repeat what was sent before it.
    return second.sent > first.sent and (not first.resumes or len(first.frames) > first.sent)


def start_of(served: Sequence[RunRecord]) -> int:
    """Return the stamp at which an exchange began, in microseconds: 0, or where a pause ended.

    `served` are the records of its served runs, the first of them first.
    """
    first = served[0]
    if not first.resumes or first.tape is None:
        return 0
    own = {play.entry for run in served for play in run.plays if play.how == "live"}
    return max((max(it.at, it.ended) for it in first.tape if it.seq not in own), default=0)


def _conversation(first: RunRecord, spec: FlowSpec) -> str:
    if first.request is None:
        return ""
    try:
        request = spec.request_of(first.request)
    except (msgspec.MsgspecError, *NO_JSON):  # of another version of the flow
        return ""
    return spec.conversation(request.body, request.session) or ""


def _tokens(served: Sequence[RunRecord]) -> tuple[int, int]:
    """Add up the tokens of live model calls, sent and received."""
    prompt = completion = 0
    for run in served:
        if not run.models:
            continue
        calls = [
            play
            for play in run.plays
            if play.op == MODEL_STREAM.name
            and play.port == MODEL_STREAM.port
            and play.entry is not None
        ]
        for play, use in zip(calls, run.models, strict=False):
            if play.how == "live" and use.usage is not None:
                prompt += use.usage.prompt_tokens
                completion += use.usage.completion_tokens
    return prompt, completion


def _tools(served: Sequence[RunRecord]) -> dict[str, ToolUse]:
    """Count the tool calls that were made, and those that failed, by tool."""
    port, run_op, list_op = TOOLS_RUN.port, TOOLS_RUN.name, TOOLS_LIST.name
    calls = [
        play.entry
        for run in served
        for play in run.plays
        if play.port == port and play.op == run_op and play.how == "live"
    ]
    if not calls:
        return {}
    entries = [entry for entry in served[0].tape or () if entry.port == port]
    offered = {name for entry in entries if entry.op == list_op for name in _offered(entry)}
    made = {entry.seq: entry for entry in entries if entry.op == run_op}
    found: dict[str, ToolUse] = {}
    for seq in calls:
        call = made.get(seq) if seq is not None else None
        name = _called(call) if call is not None else ""
        name = name if name in offered else OTHERS
        before = found.get(name, _UNUSED)
        failed = call is not None and _failed(call)
        found[name] = ToolUse(before.calls + 1, before.failures + failed)
    return found


def _offered(entry: EntryRecord) -> list[str]:
    try:
        return [tool.name for item in entry.items for tool in _offered_names(item).tools]
    except NO_JSON:
        return []


def _called(entry: EntryRecord) -> str:
    try:
        return TOOLS_RUN.subject(entry.args)
    except NO_JSON:
        return ""


def what_of(operation: Operation, site: str, args: msgspec.Raw | None) -> str:
    """Name what a write does: its operation, with the tool, the action or the effect."""
    try:
        subject = operation.subject(b"{}" if args is None else args, site)
        return f"{operation.name} {subject}".rstrip()
    except NO_JSON:
        return operation.name


def _in_doubt(served: Sequence[RunRecord]) -> tuple[str, ...]:
    doubtful = [one for one in served[0].tape or () if is_in_doubt(one)]
    if not doubtful:
        return ()
    # One word, as labels of metrics are: "external.run:orders.insert".
    own = {play.entry for run in served for play in run.plays if play.how == "live"}
    return tuple(
        [
            f"{one.port}.{what_of(OPERATIONS[one.port, one.op], one.site, one.args)}".replace(
                " ", ":", 1
            )
            for one in doubtful
            if one.seq in own
        ]
    )


def is_in_doubt(call: EntryRecord) -> bool:
    """Whether a call is a write that began, and whose outcome nobody knows."""
    unknown = _UNKNOWN.get((call.port, call.op))
    if unknown is None:
        return False
    if call.fault is not None:
        return call.fault.code in _NOT_TOLD
    # The last one as it was written: with its stamp, if it has one, behind the rest.
    return bool(call.items) and bytes(call.items[-1]).startswith(unknown)


def _failed(call: EntryRecord) -> bool:
    if call.fault is not None or call.end == "error":
        return True
    try:
        return any(_tool_answer(item).error is not None for item in call.items)
    except NO_JSON:
        return False
