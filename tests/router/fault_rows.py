"""The table of faults: what is asked of each flow, what breaks where, and what must come of it.

A row is a flow, the stack its request is assigned to, a setting, a fault and its place. `RULES` say
what clients get, who is blamed and what is recorded; the first rule that fits a row decides.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from cutover.errors import Blame
from loadtests.simulator import Answer, Cut, FunctionCall, Garbage, Silence
from tests.flows.faults import TEXT

Place = Literal["first", "text", "terminal", "behind"]
"""Before the first frame, after the first text, before the terminal event, and behind it.

A fault of the model stands before, in or behind the text of its answer.
"""
Setting = Literal["", "no fallback", "both", "rests", "overflow"]
"""Besides: there is no fallback, the other stack breaks alike, the breaker of the assigned stack is
open and the other one breaks, or the tape outgrows its limit just before."""

OTHER = {"legacy": "graph", "graph": "legacy"}
PLACES: tuple[Place, ...] = ("first", "text", "terminal", "behind")
FRONT: tuple[Place, ...] = ("first", "text", "terminal")


@dataclass(frozen=True, slots=True)
class Story:
    """A request, the model's answers, and the whole stream: event names, repeated ones once.

    `text_behind` is the event behind which a client has the first text, `last` the terminal event
    or the question. `writes` are all that are performed, in order. `asked` and `wrote` count calls
    of the model and writes before the text's place and before the last event; `opened` are the
    writes before each call of the model.
    """

    body: dict[str, Any]
    answers: tuple[Answer, ...]
    shape: str
    text_behind: str
    last: str
    writes: Sequence[str]
    asked: Sequence[int]
    wrote: Sequence[int]
    opened: Sequence[int]
    first_text: str = "one "
    answering: int = 0
    """The number of the model's call that a fault of it hits first."""


_DATA = tomllib.loads(Path(__file__).with_name("fault_stories.toml").read_text("utf-8"))


def _story(row: dict[str, Any]) -> Story:
    answers = []
    for answer in row.pop("answers"):
        calls = [FunctionCall(**one) for one in answer.pop("tool_calls", ())]
        answers.append(Answer(**answer, tool_calls=tuple(calls)))
    return Story(**row, answers=tuple(answers))


STORIES = {flow: _story(row) for flow, row in _DATA["stories"].items()}
PAUSING = {flow: _story(row) for flow, row in _DATA["pausing"].items()}
"""Requests whose whole stream ends with a question to a person."""


class Fault(NamedTuple):
    """What breaks: `kind` is what the rules go by, `code` and `blame` are those of the run it ends.

    `places` are where it can happen, `settings` in which it is tried. `answer` is the model's
    instead of its own, which it is asked for `tries` times.
    """

    kind: str
    code: str = ""
    blame: Blame | None = None
    places: tuple[Place, ...] = FRONT
    settings: tuple[Setting, ...] = ("",)
    answer: Answer | None = None
    tries: int = 1

    @property
    def by_stream(self) -> bool:
        """Whether the model's answer begins, and its stream breaks."""
        return self.answer is not None and self.answer.fault is not None

    @property
    def takes_time(self) -> bool:
        """Whether a graph goes on meanwhile: it may be some parts ahead of its reader."""
        return self.code in {"stalled", "runaway"} or self.kind == "stopped"


ALL: tuple[Setting, ...] = ("", "no fallback", "both", "rests", "overflow")
SOME: tuple[Setting, ...] = ("", "no fallback", "both")
_START: tuple[Place, ...] = ("first", "text")

FAULTS: dict[str, Fault] = {
    "none": Fault("none", places=("terminal",), settings=("", "no fallback", "rests", "overflow")),
    # A stack, at its stream.
    "raises": Fault("stack", "stack_failed", "stack", PLACES, ALL),
    "exits": Fault("stack", "stack_failed", "stack", PLACES),
    "hangs": Fault("stack", "stalled", "stack", FRONT, SOME),
    "sends an event that is not due": Fault("stack", "grammar", "stack"),
    "breaks off": Fault("stack", "truncated", "stack", FRONT, ("", "no fallback")),
    "says that it failed": Fault("stack", "bad_answer", "stack"),
    "says that it lacks a model": Fault("stack", "unknown_model", "configuration"),
    "says that the world failed": Fault("world", "model_error", "world", FRONT, ("", "rests")),
    "refuses": Fault("refusal", "told_no", "stack", FRONT, SOME),
    "goes on without end": Fault("endless", "runaway", "stack", ("text", "behind")),
    "reports its failure": Fault(
        "report", "model_bad_request", "stack", _START, ("", "no fallback")
    ),
    # The model, as the simulated provider sends it.
    "429": Fault(
        "model", "model_rate_limited", "world", _START, answer=Answer(status=429), tries=3
    ),
    "503": Fault("model", "model_unavailable", "world", _START, answer=Answer(status=503), tries=3),
    "400": Fault("asking", "model_bad_request", "stack", _START, answer=Answer(status=400)),
    "401": Fault("asking", "model_auth", "configuration", _START, answer=Answer(status=401)),
    "cut": Fault("model", "model_unavailable", "world", answer=Answer(fault=Cut())),
    "silent": Fault("model", "model_timeout", "world", answer=Answer(fault=Silence())),
    "malformed": Fault("model", "model_error", "world", answer=Answer(fault=Garbage())),
    # What else there is.
    "the client leaves": Fault("left", places=PLACES),
    "the server stops": Fault("stopped", "server_stopped", "world", PLACES),
    "the store of pauses is down": Fault("unstored", "pause_not_stored", "world", ("terminal",)),
}
PAUSES_WITH = ("none", "raises", "hangs", "the client leaves", "the server stops")
"""Faults that are tried where a question is due, besides that of the store."""


class Row(NamedTuple):
    """A line of the table."""

    flow: str
    assigned: str
    setting: Setting
    fault: str
    place: Place
    pauses: bool = False

    @property
    def story(self) -> Story:
        """What is asked, and what comes."""
        return (PAUSING if self.pauses else STORIES)[self.flow]

    @property
    def what(self) -> Fault:
        """What breaks."""
        return FAULTS[self.fault]

    @property
    def order(self) -> tuple[str, str]:
        """The stacks in the order in which they are tried."""
        order = (self.assigned, OTHER[self.assigned])
        return order[::-1] if self.setting == "rests" else order

    @property
    def breaks(self) -> tuple[str, ...]:
        """The stacks that break; none where the model does."""
        if self.what.answer is not None:
            return ()
        return self.order if self.setting == "both" else self.order[:1]

    @property
    def call(self) -> int:
        """The number of the model's call that a fault of it hits."""
        within = self.what.by_stream and self.flow != "ops"
        later = self.place == "terminal" or (self.place == "text" and not within)
        return 1 if later else self.story.answering

    @property
    def script(self) -> list[Answer]:
        """What the model answers."""
        fault, answers, number = self.what, list(self.story.answers), self.call
        if fault.answer is None:
            return answers
        if not fault.by_stream:
            return [*answers[:number], *[fault.answer] * fault.tries, *answers[number:]]
        kind: Any = type(fault.answer.fault)
        after = {"first": 0, "text": 1, "terminal": 99}[self.place]
        answers[number] = msgspec.structs.replace(answers[number], fault=kind(after))
        return answers

    def __str__(self) -> str:
        kind = "question" if self.pauses else ""
        named = (self.flow, kind, self.assigned, self.setting, self.fault, self.place)
        return "-".join(one.replace(" ", "_") for one in named if one)


def rows() -> Iterator[Row]:
    """Yield the table: every fault in each place and setting where it can be, for all flows."""
    for name, fault in FAULTS.items():
        for setting in fault.settings:
            for place in fault.places:
                for flow in STORIES:
                    for assigned in OTHER:
                        row = Row(flow, assigned, setting, name, place)
                        if _possible(row, fault):
                            yield row
                        if flow in PAUSING and _pauses(row):
                            yield row._replace(pauses=True)


def _possible(row: Row, fault: Fault) -> bool:
    """Whether a row can be: `ops` streams no text, and `pipeline` asks for one answer."""
    match fault.kind:
        case "endless":
            return row.place == "behind" or row.flow != "ops"
        case "report":
            return row.flow == "pipeline"
        case "model" | "asking":
            return fault.by_stream or row.flow != "pipeline" or row.place != "text"
        case kind:
            return kind != "unstored" and (row.place != "behind" or row.setting == "")


def _pauses(row: Row) -> bool:
    unstored = row.fault == "the store of pauses is down"
    return unstored or (
        row.fault in PAUSES_WITH and row.place != "behind" and row.setting != "overflow"
    )


# What must come of it.


class Rule(NamedTuple):
    """What comes of faults: `status` 0 is no answer, `served` the stack that the header names.

    `gets` is what the client has in the end: the whole stream, one that says that it failed, a
    refusal, or a stream cut off. `runs` say how each ended, in order. "" stands for any.
    """

    kinds: str
    settings: tuple[Setting, ...]
    places: str
    status: int
    gets: Literal["whole", "failed", "refused", "cut"]
    served: Literal["assigned", "other", ""]
    runs: str
    flow: str = ""

    def fits(self, row: Row) -> bool:
        """Whether the rule is about a row."""
        return (
            (not self.kinds or row.what.kind in self.kinds.split())
            and (not self.settings or row.setting in self.settings)
            and (not self.places or row.place in self.places.split())
            and self.flow in {"", row.flow}
        )


_LATER = "text terminal"
_NONE: tuple[Setting, ...] = ("no fallback", "overflow")

RULES = (
    #    what            setting       where     HTTP  gets       header      runs
    Rule("none", ("rests",), "", 200, "whole", "other", "whole"),
    Rule("none", (), "", 200, "whole", "assigned", "whole"),
    Rule("", (), "behind", 200, "whole", "assigned", "whole"),
    Rule("refusal", (), "first", 409, "refused", "", "refused"),
    Rule("stack", _NONE, "first", 500, "failed", "", "fault"),
    Rule("stack refusal", _NONE, _LATER, 200, "failed", "assigned", "fault"),
    Rule("stack", ("both",), "first", 500, "failed", "", "fault fault"),
    Rule("stack refusal", ("both",), _LATER, 200, "failed", "assigned", "fault fault"),
    Rule("stack", ("rests",), "first", 200, "whole", "assigned", "fault whole"),
    Rule("stack refusal", ("rests",), _LATER, 200, "whole", "other", "fault whole"),
    Rule("stack", (), "first", 200, "whole", "other", "fault whole"),
    Rule("stack refusal", (), _LATER, 200, "whole", "assigned", "fault whole"),
    Rule("endless", (), "text", 200, "whole", "assigned", "fault whole", "chat"),
    Rule("endless", (), "text", 200, "failed", "assigned", "fault mismatch"),
    Rule("report", ("no fallback",), "", 200, "failed", "assigned", "fault"),
    Rule("report", (), "first", 200, "whole", "other", "fault whole"),
    Rule("report", (), "text", 200, "whole", "assigned", "fault whole"),
    Rule("world", (), "first", 503, "failed", "", "fault"),
    Rule("world", ("rests",), _LATER, 200, "failed", "other", "fault"),
    Rule("world", (), _LATER, 200, "failed", "assigned", "fault"),
    Rule("model", (), "first", 503, "failed", "", "fault", "ops"),
    Rule("model", (), "", 200, "failed", "assigned", "fault"),
    Rule("asking", (), "first", 500, "failed", "", "fault fault", "ops"),
    Rule("asking", (), "first", 200, "failed", "other", "fault fault", "pipeline"),
    Rule("asking", (), "", 200, "failed", "assigned", "fault fault"),
    Rule("left", (), "first", 0, "cut", "", "left"),
    Rule("left", (), _LATER, 200, "cut", "assigned", "left"),
    Rule("stopped", (), "first", 503, "failed", "", "fault"),
    Rule("stopped", (), _LATER, 200, "failed", "assigned", "fault"),
    Rule("unstored", (), "", 200, "failed", "assigned", "whole"),
)


DROPPED = {"left": "client_left", "stopped": "stopping"}
"""Why what was cut short has no shadow, by the kind of what did."""
Ended = tuple[str, str, str]
"""How a run ends: the kind of its outcome, its code and its blame; "" for what it has not."""


class Expected(NamedTuple):
    """What must come of a row.

    `told` is the code in the client's stream, `text` what it has been said. `outcome` is what is
    recorded; `opened` are the stacks whose breakers, which bear no failure, are open. `dropped`
    is why the exchange gets no shadow. `asked` and `wrote` are how many calls of the model and how
    many writes are performed.
    """

    status: int
    gets: str
    served: str
    told: str | None
    text: str
    runs: list[tuple[str, Ended]]
    outcome: Ended
    opened: set[str]
    dropped: str
    asked: range
    wrote: range


def expected(row: Row) -> Expected:
    """Return what must come of a row: by the first rule that fits, and as far as its story went."""
    fault, story = row.what, row.story
    rule = next(one for one in RULES if one.fits(row))
    whole = rule.gets == "whole"
    code = fault.code
    if fault.kind == "refusal" and row.place != "first":
        code = "refused_late"
    ends: dict[str, Ended] = {
        "whole": ("pause" if row.pauses else "completed", "", ""),
        "fault": ("failed", code, fault.blame or ""),
        "mismatch": ("failed", "prefix_mismatch", "stack"),
        "left": ("left", "", ""),
        "refused": ("refusal", code, ""),
    }
    runs = [(stack, ends[one]) for stack, one in zip(row.order, rule.runs.split(), strict=False)]
    blamed = {stack for stack, (_, _, blame) in runs if blame == "stack"}
    outcome = ends["fault"] if fault.kind == "unstored" else runs[-1][1]
    asked, wrote, text = _so_far(row)
    most_asked, most_wrote = len(story.answers), len(story.writes)
    if whole:
        asked, wrote = most_asked, most_wrote
        text = story.first_text if row.pauses else TEXT
    elif not (row.place == "text" and fault.takes_time and "graph" in dict(runs)):
        most_asked, most_wrote = asked, wrote
    # A client of chat that has SUCCESS has the whole answer.
    success = row.flow == "chat" and row.place == "terminal" and fault.answer is None
    return Expected(
        rule.status,
        rule.gets,
        {"assigned": row.assigned, "other": OTHER[row.assigned], "": ""}[rule.served],
        None if whole or success else outcome[1],
        text,
        runs,
        outcome,
        blamed | ({row.assigned} if row.setting == "rests" else set()),
        "overflowed" if row.setting == "overflow" else "" if whole else DROPPED.get(fault.kind, ""),
        range(asked, most_asked + 1),
        range(wrote, most_wrote + 1),
    )


def _so_far(row: Row) -> tuple[int, int, str]:
    """Return the calls of the model, the writes and the text until the fault."""
    fault, story = row.what, row.story
    said = {"first": "", "text": story.first_text}.get(
        row.place, story.first_text if row.pauses else TEXT
    )
    if fault.answer is not None:
        said = "" if row.flow == "ops" else said
        return row.call + fault.tries, story.opened[row.call], said
    if row.place == "first":
        return 0, 0, said
    number = 0 if row.place == "text" else 1
    return story.asked[number], story.wrote[number], said
