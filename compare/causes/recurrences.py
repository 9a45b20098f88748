"""Recurrences: what shows a known change again, in the order in which values travel.

What was sent is stored and quoted; what a call did not answer is in no prompt and no frame; what is
done twice at one site of an operation is done twice at the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from compare.causes.differences import Differences, F, first, mark
from compare.content import TELLING, core, recurs
from compare.findings import (
    CallChanged,
    CallExtra,
    CallSkipped,
    Finding,
    FrameChanged,
    ParameterChanged,
    PromptChanged,
    ReasoningChanged,
    TextChanged,
    ToolAdded,
    ToolArguments,
    ToolDropped,
    WriteChanged,
    signature_of,
)
from compare.input.damage import ILLEGIBLE
from compare.streams.alignment import align
from contract.calls import EffectCall
from contract.operations import HUMAN_OPEN, MODEL_LOOKUP, MODEL_STREAM, TOOLS_LIST, TOOLS_RUN

KNOWN_AT_MOST = 64
LEAVES_AT_MOST = 256
_TOOL_ROUNDS = (TOOLS_RUN.label, MODEL_STREAM.label)
"""Calls that are not made where no tools are offered."""
_LOOKUPS = (MODEL_LOOKUP.label, TOOLS_LIST.label)
_VALUES = (
    FrameChanged
    | TextChanged
    | ReasoningChanged
    | ToolArguments
    | WriteChanged
    | CallChanged
    | ParameterChanged
    | PromptChanged
)


def mark_recurrences(case: Differences) -> None:
    """Mark what shows the same change again, outside in, and let all follow from the root."""
    known = _Known(case)
    case.text = known.explain_all(case.text)
    case.frames = known.explain_all(case.frames)
    case.effects = known.explain_all(case.effects)
    _follow_to_the_root(case)


class _Known:
    """The changes known so far, and what they explain."""

    def __init__(self, case: Differences) -> None:
        self._case = case
        self._values: list[tuple[tuple[str, str], Finding, str | None]] = []
        self._explained: dict[str, str] = {}
        self._promoted: dict[str, str] = {}

    def explain_all(self, findings: list[F]) -> list[F]:
        """Mark the findings of one layer."""
        return list(map(self._explain, findings))

    def _explain(self, finding: F) -> F:
        group = finding.after if finding.after in self._explained else None
        cause = self._by_call(finding) or self._by_value(finding)
        if group is not None and isinstance(finding, _VALUES):
            return self._of_its_own(finding, group, cause)
        if cause is not None and finding.after is None:
            self._explained[signature_of(finding)] = cause
        return mark(finding, cause)

    def _of_its_own(self, finding: F, group: str, cause: str | None) -> F:
        """Mark a message or field beside one that stood for all, and turned out to be explained.

        The first that is not explained so is the cause in its place.
        """
        changed: F
        if cause is None and group not in self._promoted:
            detail = finding.detail if isinstance(finding, PromptChanged) else ""
            changed = msgspec.structs.replace(finding, after=None, detail=detail)
            self._promoted[group] = signature_of(changed)
            return changed
        changed = msgspec.structs.replace(finding, after=cause or self._promoted[group])
        return changed

    def _by_value(self, finding: Finding) -> str | None:
        """Find what shows the same change, or did not answer with what lacks here."""
        if not isinstance(finding, _VALUES) or not finding.legacy:
            return None
        values = finding.legacy, finding.graph or ""
        if not values[1]:
            return self._by_answer(finding)
        explaining = (
            by or signature_of(source)
            for of, source, by in self._values
            if not self._comes_later(source, finding) and recurs(of, *values)
        )
        cause = next(explaining, None) or self._by_answer(finding)
        if len(self._values) < KNOWN_AT_MOST:
            self._values.append((values, finding, cause or finding.after))
        return cause

    def _comes_later(self, source: Finding, finding: Finding) -> bool:
        """Whether a change is known to come behind what it would explain.

        What is written explains no question to the model, and no answer the first question.
        """
        if isinstance(source, WriteChanged):
            return not isinstance(finding, WriteChanged)
        answered = isinstance(source, TextChanged | ReasoningChanged)
        return answered and finding.path.startswith(self._first_question)

    @cached_property
    def _first_question(self) -> str:
        asked = (call for call in self._case.calls[0] if call.label == MODEL_STREAM.label)
        return next((call.place for call in asked), "\0")

    def _by_answer(self, finding: Finding) -> str | None:
        """Find a call graph did not make whose answer stands in all lines that graph lacks.

        An answer too short to be known again must be all that differs.
        """
        if not self._skipped:
            return None
        legacy, graph = finding.legacy or "", finding.graph or ""
        old, new = legacy.split("\n"), graph.split("\n")
        places = [
            (
                "\n".join(old[b.left.start : b.left.stop]),
                "\n".join(new[b.right.start : b.right.stop]),
            )
            for b in align(old, new)
            if not b.equal
        ]
        for call, leaves, by in self._skipped:
            behind = self._behind(call, finding)
            known = [leaf for leaf in leaves if len(leaf) >= TELLING and leaf in behind]
            if known and all(any(it in a and it not in b for it in known) for a, b in places):
                return by
            if behind and any(leaf in {legacy, core(legacy, graph)[0]} for leaf in leaves):
                return by
        return None

    def _behind(self, call: int, finding: Finding) -> str:
        """Return legacy's value, or what of it came behind one of its calls."""
        legacy, (calls, _) = finding.legacy or "", self._case.calls
        match finding:
            case FrameChanged():
                return legacy if 0 <= calls[call].frames <= finding.at_legacy else ""
            case TextChanged() | ReasoningChanged():
                sent, reached = calls[call].frames, self._case.legacy.reached
                if not 0 <= sent <= len(reached):
                    return ""
                come = reached[sent - 1][isinstance(finding, ReasoningChanged)] if sent else 0
                return legacy[come:]
            case _:
                later = (one.place for one in calls[call + 1 :])
                return legacy if finding.path.startswith(tuple(later)) else ""

    def _by_call(self, finding: Finding) -> str | None:
        """Find the call that explains another call.

        A question and the frame that shows it are one form; a setting that is looked up, or tools
        that are not listed, are no setting of the model call; what an operation does twice at one
        site it does twice at the next.
        """
        match finding:
            case _ if finding.path.startswith(HUMAN_OPEN.label):
                return self._form
            case ParameterChanged():
                return self._lookup
            case ToolDropped() | CallSkipped() if finding.path.startswith(_TOOL_ROUNDS):
                return self._offer
            case CallExtra() | ToolAdded():
                return self._repeated.get(finding.path)
            case _:
                return None

    @cached_property
    def _form(self) -> str | None:
        frames = self._case.frames
        return first(
            [f for f in frames if isinstance(f, FrameChanged) and f.path.endswith(".form")]
        )

    @cached_property
    def _lookup(self) -> str | None:
        return first([f for f in self._case.effects if f.path.startswith(_LOOKUPS)])

    @cached_property
    def _offer(self) -> str | None:
        return first(
            [
                f
                for f in self._case.effects
                if isinstance(f, CallSkipped) and f.path.startswith(TOOLS_LIST.label)
            ]
        )

    @cached_property
    def _repeated(self) -> Mapping[str, str]:
        """The first extra call of an operation that repeats another, by the places of all."""
        extra = {
            f.path: signature_of(f)
            for f in self._case.effects
            if isinstance(f, CallExtra | ToolAdded)
        }
        if len(extra) <= 1:
            return {}
        calls = self._case.calls[1]
        times = Counter((call.label, call.site, call.args) for call in calls)
        before: dict[str, str] = {}
        return {
            call.place: before.setdefault(call.label, extra[call.place])
            for call in calls
            if call.place in extra and times[call.label, call.site, call.args] > 1
        }

    @cached_property
    def _skipped(self) -> Sequence[tuple[int, Sequence[str], str]]:
        """Legacy's calls that graph did not make, what they were answered, and their findings."""
        places = {
            f.path: signature_of(f)
            for f in self._case.effects
            if isinstance(f, CallSkipped | ToolDropped)
            and f.after is None
            and not f.path.startswith(MODEL_STREAM.label)
        }
        if not places:
            return ()
        answers = {entry.seq: entry.items for entry in self._case.pair.tape}
        return [
            (k, list(_leaves_of(answers.get(call.entry or 0, ()), call)), places[call.place])
            for k, call in enumerate(self._case.calls[0])
            if call.place in places and call.entry is not None
        ]


def _leaves_of(items: Sequence[msgspec.Raw], call: EffectCall) -> Iterator[str]:
    """Yield the texts and numbers of an answer, apart from those that the call itself has."""
    asked = call.args.decode("utf-8", "replace")
    left = LEAVES_AT_MOST
    for item in items:
        try:
            found = list(_leaves(msgspec.json.decode(item)))
        except ILLEGIBLE:
            continue
        for leaf in found[:left]:
            left -= 1
            if len(leaf) < TELLING or leaf not in asked:
                yield leaf


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, list | dict):
        for held in value.values() if isinstance(value, dict) else value:
            yield from _leaves(held)
    elif value and not isinstance(value, bool):
        yield str(value)


def _follow_to_the_root(case: Differences) -> None:
    """Let what follows from a finding that is no cause itself follow from that one's cause."""
    every = (*case.outcome, *case.grammar, *case.frames, *case.text, *case.effects)
    causes = {signature_of(f) for f in every if f.after is None}
    if all(f.after is None or f.after in causes for f in every):
        return
    roots = {signature_of(f): f.after for f in every if f.after is not None}

    def rooted(finding: F) -> F:
        root, seen = finding.after, set[str]()
        while root is not None and root not in causes and root not in seen:
            seen.add(root)
            root = roots.get(root)
        if root is None or root == finding.after or root == signature_of(finding):
            return finding
        changed: F = msgspec.structs.replace(finding, after=root)
        return changed

    case.outcome = [rooted(finding) for finding in case.outcome]
    case.frames = [rooted(finding) for finding in case.frames]
    case.text = [rooted(finding) for finding in case.text]
    case.effects = [rooted(finding) for finding in case.effects]
