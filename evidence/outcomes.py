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
from typing import Final, Literal, NamedTuple

import msgspec

from contract.flow import FlowSpec
from contract.operations import MODEL_STREAM, TOOLS_RUN
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

Measure = tuple[str, ...]
"""What is counted, and by which code: `("errors", "stall")`."""
TimeMeasure = Literal["first_frame", "first_text", "longest_gap", "last_frame"]
TIMES: Final[tuple[TimeMeasure, ...]] = ("first_frame", "first_text", "longest_gap", "last_frame")


class ExchangeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange as its client had it; its shadow is no part of it.

    `began` is in microseconds since the epoch; other times are microseconds since the exchange
    began, or went on after a pause: the first frame, the first text, the last frame; comments are
    no frames. `longest_gap` is the longest wait between two frames, in microseconds. `end` is how
    the last run that served it ended, `code` the code of its failure or refusal. `lost` is what a
    fallback cost, in microseconds. `conversation` is what it belongs to, "" where its request names
    none. Tokens and `cost` are those of live calls; `cost` is None where no price is known.
    `tool_failures` are the tool calls that ended in an error. `reason`, `bucket` and `config` are
    those of its record: what decided the assignment or, after a failure, why another stack served;
    where its key lies among 100 000 buckets, -1 where that is unknown; the version of the settings.
    """

    exchange: str
    flow: str
    assigned: str
    served: str
    began: int
    end: Outcome
    reason: str = ""
    bucket: int = -1
    config: str = ""
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
    tool_calls: int = 0
    tool_failures: int = 0
    feedback: Score | None = None


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
    if one.cost is not None:
        counts.append((("cost",), round(one.cost * BILLION)))
    if one.tool_calls:
        counts.append((("tool_calls",), one.tool_calls))
        counts.append((("tool_failures",), one.tool_failures))
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
        if measure not in self.counts and len(measure) > 1:
            alike = sum(known[:-1] == measure[:-1] for known in self.counts)
            if alike >= MOST_CODES:
                measure = (*measure[:-1], OTHERS)
        self.counts[measure] += amount


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


_tool_answer = msgspec.json.Decoder(_ToolAnswer).decode


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
    frames, start = client_frames(served, spec), start_of(served)
    longest_gap = before = None
    for at, _ in frames:
        if before is not None and (longest_gap is None or at - before > longest_gap):
            longest_gap = at - before
        before = at
    if first_text == UNREAD:
        first_text = text_stamp(frames, spec)
    error = last.error
    prompt_tokens, completion_tokens = _tokens(served)
    costs = [run.cost for run in served if run.cost is not None]
    tool_calls, tool_failures = _tools(served)
    return ExchangeOutcome(
        exchange=first.exchange,
        flow=first.flow,
        assigned=first.assigned,
        served=first.served,
        began=first.began,
        end=last.outcome,
        reason=first.reason,
        bucket=first.bucket,
        config=first.config,
        code=error.code if error is not None and last.outcome != "completed" else "",
        conversation=_conversation(first, spec) if conversation is None else conversation,
        fallback=_fallback(served),
        lost=first.lost_us,
        client_left=last.client_left or (error is not None and error.code in CLIENT_LEFT),
        first_frame=frames[0][0] - start if frames else None,
        first_text=None if first_text is None else first_text - start,
        longest_gap=longest_gap,
        last_frame=frames[-1][0] - start if frames else None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=sum(costs) if costs else None,
        tool_calls=tool_calls,
        tool_failures=tool_failures,
        feedback=feedback,
    )


def client_frames(served: Sequence[RunRecord], spec: FlowSpec) -> Frames:
    """Return the frames that the client of an exchange got, over a takeover too, no comments.

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
    if spec.dialect.framing == "sse":
        return [frame for frame in frames if frame[1][:1] != ":"]
    return frames


def text_stamp(frames: Frames, spec: FlowSpec) -> int | None:
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


def _tools(served: Sequence[RunRecord]) -> tuple[int, int]:
    """Count the tool calls that were made, and those that failed."""
    calls = [
        play.entry
        for run in served
        for play in run.plays
        if play.port == TOOLS_RUN.port and play.op == TOOLS_RUN.name and play.how == "live"
    ]
    if not calls:
        return 0, 0
    failed = sum(_failed(entry) for entry in served[0].tape or () if entry.seq in calls)
    return len(calls), failed


def _failed(call: EntryRecord) -> bool:
    if call.fault is not None or call.end == "error":
        return True
    try:
        return any(_tool_answer(item).error is not None for item in call.items)
    except NO_JSON:
        return False
