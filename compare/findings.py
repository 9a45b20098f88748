"""Findings: the closed union of ways two runs can differ."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from compare.content import content_class

Layer = Literal["outcome", "grammar", "frames", "text", "effects"]
LAYERS: tuple[Layer, ...] = ("outcome", "grammar", "frames", "text", "effects")
Side = Literal["legacy", "graph", "both"]

VALUE_AT_MOST = 20_000
ARROW = " → "
"""Stands between the calls and frames of an order."""
_INDEX = re.compile(r"\[\d+\]")


class Difference(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every finding has: where it is, and what stands there on each side (None: nothing).

    `after` is the signature of the finding this one follows from, None for a cause. `detail` is
    what the place holds several of: a field, a tool, the roles of a prompt.
    """

    path: str
    exchange: str
    legacy: str | None = None
    graph: str | None = None
    after: str | None = None
    detail: str = ""


class _Outcome(Difference, frozen=True, kw_only=True):
    layer: Literal["outcome"] = "outcome"


class _Frames(Difference, frozen=True, kw_only=True):
    layer: Literal["frames"] = "frames"
    at_legacy: int
    at_graph: int
    count: int = 1


class _Text(Difference, frozen=True, kw_only=True):
    layer: Literal["text"] = "text"


class _Effects(Difference, frozen=True, kw_only=True):
    layer: Literal["effects"] = "effects"


class OutcomeChanged(_Outcome, frozen=True, kw_only=True, tag="outcome_changed"):
    """The runs ended differently."""


class CodeChanged(_Outcome, frozen=True, kw_only=True, tag="code_changed"):
    """Both runs failed or refused, with different codes."""


class RefusalChanged(_Outcome, frozen=True, kw_only=True, tag="refusal_changed"):
    """Both runs refused with one code, but with another HTTP status or another sentence."""


class GrammarBroken(Difference, frozen=True, kw_only=True, tag="grammar_broken"):
    """A stream is not one of its flow; `at` is the event's index in that side's stream."""

    layer: Literal["grammar"] = "grammar"
    side: Side
    at: int
    shrank: bool = False


class FrameDropped(_Frames, frozen=True, kw_only=True, tag="frame_dropped"):
    """`count` frames in a row that the graph stack did not send; `at_graph` is where they lack."""


class FrameAdded(_Frames, frozen=True, kw_only=True, tag="frame_added"):
    """`count` frames in a row that only the graph stack sent."""


class FrameReplaced(_Frames, frozen=True, kw_only=True, tag="frame_replaced"):
    """Frames of other names stand in the place of frames."""


class FrameMoved(_Frames, frozen=True, kw_only=True, tag="frame_moved"):
    """A frame both stacks sent, at another place among the others."""


class FrameChanged(_Frames, frozen=True, kw_only=True, tag="frame_changed"):
    """A frame of the same name with other content, text apart."""


class EventLineChanged(_Frames, frozen=True, kw_only=True, tag="event_line_changed"):
    """Frames of the same names come under other `event:` lines, on which clients dispatch."""


class ChunksMoved(_Frames, frozen=True, kw_only=True, tag="chunks_moved"):
    """The same text was cut elsewhere; only found when chunk boundaries count."""


class CadenceChanged(_Frames, frozen=True, kw_only=True, tag="cadence"):
    """One model stream was sent in other pieces: more or fewer of them, or cut elsewhere."""


class TextChanged(_Text, frozen=True, kw_only=True, tag="text_changed"):
    """The final text differs."""


class ReasoningChanged(_Text, frozen=True, kw_only=True, tag="reasoning_changed"):
    """The final reasoning differs."""


class RefusalAsText(_Text, frozen=True, kw_only=True, tag="refusal_as_text"):
    """The model's refusal is told as one on one side, and as text of the answer on the other."""

    side: Side
    """That on which it is text."""


class TextLate(_Text, frozen=True, kw_only=True, tag="text_late"):
    """The final text is equal, but at this frame one side had come further than the other."""


class TextShrank(_Text, frozen=True, kw_only=True, tag="text_shrank"):
    """A cumulative text took back what had been shown, on one side only."""

    side: Side


class PromptSource(msgspec.Struct, frozen=True):
    """Where a difference of a prompt comes from: a line of a template, or of a file it draws in.

    `variable` is the value put in there, `computed` what the template computes there; both are ""
    where it is the template's own text.
    """

    template: str
    file: str
    line: int
    variable: str = ""
    computed: str = ""


class PromptChanged(_Effects, frozen=True, kw_only=True, tag="prompt_changed"):
    """A message to the model differs, is missing (graph None) or is new (legacy None).

    The path names the field that differs: the role of a message for its text, what is below that
    for another field, `messages[]` alone for a message that one side lacks, `messages[].role`.
    `change` is its class, "" where an earlier version wrote the finding; `source` is known where
    there is a map of prompts.
    """

    change: str = ""
    source: PromptSource | None = None


class ParameterChanged(_Effects, frozen=True, kw_only=True, tag="parameter_changed"):
    """A parameter of a model call differs: model, temperature, tools and their like."""


class ToolDropped(_Effects, frozen=True, kw_only=True, tag="tool_dropped"):
    """A tool call the graph stack did not make."""

    tool: str


class ToolAdded(_Effects, frozen=True, kw_only=True, tag="tool_added"):
    """A tool call only the graph stack made; `missed`: nothing recorded could answer it."""

    tool: str
    missed: bool = False


class ToolArguments(_Effects, frozen=True, kw_only=True, tag="tool_arguments"):
    """A tool was called with other arguments."""

    tool: str


class ToolOrder(_Effects, frozen=True, kw_only=True, tag="tool_order"):
    """The same tools were called in another order."""


class WriteChanged(_Effects, frozen=True, kw_only=True, tag="write_changed"):
    """Something else was written: a memory, a turn, a lock, a question."""


class WriteOrder(_Effects, frozen=True, kw_only=True, tag="write_order"):
    """The same things were written in another order."""


class ReadOrder(_Effects, frozen=True, kw_only=True, tag="read_order"):
    """A store is read on the other side of a write to it."""


class FrameOrder(_Effects, frozen=True, kw_only=True, tag="frame_order"):
    """A write or release on the other side of a frame that ends the stream, or shows a question."""


class CallChanged(_Effects, frozen=True, kw_only=True, tag="call_changed"):
    """Something was read or asked with other arguments."""


class CallSkipped(_Effects, frozen=True, kw_only=True, tag="call_skipped"):
    """A call the graph stack did not make."""


class CallExtra(_Effects, frozen=True, kw_only=True, tag="call_extra"):
    """A call only the graph stack made; `missed`: nothing recorded could answer it."""

    missed: bool = False


class SiteChanged(_Effects, frozen=True, kw_only=True, tag="site_changed"):
    """The same call was made under another site."""


class CallUnplayed(_Effects, frozen=True, kw_only=True, tag="call_unplayed"):
    """A recorded call neither run asked for."""


OutcomeFinding: TypeAlias = OutcomeChanged | CodeChanged | RefusalChanged
FrameFinding: TypeAlias = (
    FrameDropped
    | FrameAdded
    | FrameReplaced
    | FrameMoved
    | FrameChanged
    | EventLineChanged
    | ChunksMoved
    | CadenceChanged
)
TextFinding: TypeAlias = TextChanged | ReasoningChanged | RefusalAsText | TextLate | TextShrank
EffectFinding: TypeAlias = (
    PromptChanged
    | ParameterChanged
    | ToolDropped
    | ToolAdded
    | ToolArguments
    | ToolOrder
    | WriteChanged
    | WriteOrder
    | ReadOrder
    | FrameOrder
    | CallChanged
    | CallSkipped
    | CallExtra
    | SiteChanged
    | CallUnplayed
)
Finding: TypeAlias = OutcomeFinding | GrammarBroken | FrameFinding | TextFinding | EffectFinding


def tells_apart(finding: Finding) -> bool:
    """Whether a finding is a difference: a breach of the grammar on both sides is none."""
    return not (isinstance(finding, GrammarBroken) and finding.side == "both")


def kind_of(finding: Finding) -> str:
    """Return a finding's kind, the tag of its class."""
    return str(finding.__struct_config__.tag)


def general_path(path: str) -> str:
    """Remove the indices of a path, so that equal differences look equal."""
    return _INDEX.sub("[]", path)


_BY_CONTENT = (
    FrameChanged
    | TextChanged
    | ReasoningChanged
    | PromptChanged
    | ToolArguments
    | WriteChanged
    | CallChanged
)


def change_of(finding: Finding) -> str:
    """Return the class of a finding's change, "" of kinds that say themselves what changed."""
    if isinstance(finding, PromptChanged) and finding.change:
        return finding.change
    if isinstance(finding, _BY_CONTENT):
        return content_class(finding.legacy, finding.graph)
    if isinstance(finding, ParameterChanged):
        # A setting that is ignored is one fault, whatever it was set to.
        lost = content_class(finding.legacy, finding.graph) == "missing"
        return "missing" if lost else "value"
    return ""


def signature_of(finding: Finding) -> str:
    """Return the stable id of a finding: 12 hexadecimal digits.

    It is made of layer, path without indices, kind and class of change; the place alone counts
    where several fields changed, and of an outcome.
    """
    kind, change = kind_of(finding), "" if finding.detail else change_of(finding)
    if finding.layer == "outcome":
        kind = ""
    elif isinstance(finding, PromptChanged):
        change = change_of(finding)
    return _id(finding.layer, finding.path, kind, change)


@lru_cache(maxsize=4_096)
def _id(layer: Layer, path: str, kind: str, change: str) -> str:
    parts = layer, general_path(path), kind, change
    return blake2b("\x1f".join(parts).encode(), digest_size=6).hexdigest()


def detail_of(finding: Finding) -> str:
    """Describe what a cause, or what follows from it, changes: detail or place, and class."""
    if finding.layer == "outcome":
        return f"{finding.legacy} → {finding.graph}"
    # Of several fields each that follows names itself.
    first = re.split(r"[ +]", finding.detail, maxsplit=1)[0]
    what = first if finding.after is None else general_path(finding.path)
    return f"{what}: {change_of(finding) or kind_of(finding)}".removeprefix(": ")


def shortened(value: str, most: int = VALUE_AT_MOST) -> str:
    """Keep a value within what a finding may hold."""
    if len(value) <= most:
        return value
    return f"{value[:most]}… ({len(value) - most} more characters)"


def first_difference(one: str, other: str) -> int:
    """Return the index from which two texts differ; of equal ones their length."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def excerpts(legacy: str, graph: str, most: int = VALUE_AT_MOST) -> tuple[str, str]:
    """Shorten two differing texts around their first difference."""
    if max(len(legacy), len(graph)) <= most:
        return legacy, graph
    start = max(0, first_difference(legacy, graph) - most // 4)
    lead = "…" if start else ""
    return lead + shortened(legacy[start:], most), lead + shortened(graph[start:], most)
