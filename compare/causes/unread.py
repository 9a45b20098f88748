"""Unread frames: what breaks a stream's grammar, or cannot be read, explains what lacks behind it.

Names the flow does not have, and payloads that do not fit, are not read: their texts lack, and
their frames stand alone.
"""

from __future__ import annotations

from itertools import pairwise

from compare.causes.differences import Differences, first
from compare.content import core
from compare.findings import (
    CadenceChanged,
    FrameAdded,
    FrameChanged,
    FrameDropped,
    FrameFinding,
    FrameReplaced,
    GrammarBroken,
    ReasoningChanged,
    TextChanged,
    TextFinding,
    signature_of,
)
from contract.equality import EventStream, StreamEvent

_ARGUMENTS = ".tool_call.arguments"


def why_grammar(case: Differences, broken: GrammarBroken) -> str | None:
    """A text that was changed shrank, or a frame that is missing left a hole."""
    if broken.shrank:
        changed = first([f for f in case.text if isinstance(f, TextChanged)])
        if changed:
            return changed
    for finding in case.frames:
        if finding.after is None and _left_a_hole(case, finding, broken):
            return signature_of(finding)
    return None


def _left_a_hole(case: Differences, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether the grammar stumbles where the other side has a frame more."""
    if isinstance(finding, FrameDropped) and broken.side == "graph":
        return finding.at_graph <= broken.at <= _next_firm(case.graph, finding.at_graph)
    if isinstance(finding, FrameAdded) and broken.side == "legacy":
        return finding.at_legacy <= broken.at <= _next_firm(case.legacy, finding.at_legacy)
    return False


def _next_firm(stream: EventStream, at: int) -> int:
    """Index of the next event that is more than text, for those alone are always aligned."""
    rest = range(at, len(stream.events))
    return next((k for k in rest if not stream.events[k].bare), len(stream.events))


def why_frame_unread(case: Differences, finding: FrameFinding) -> str | None:
    """The grammar forbids the frame, it is none that is read, or it lacks a piece that is not."""
    for broken in case.grammar:
        if isinstance(finding, CadenceChanged) and (broken.shrank or _cuts_lost(case, broken)):
            return signature_of(broken)
        if (
            _forbidden(finding, broken)
            or _unreadable(case, finding, broken)
            or _lost_a_piece(case, finding, broken)
        ):
            return signature_of(broken)
    return None


def why_text_unread(case: Differences, finding: TextFinding) -> str | None:
    """A text lacks what stood in frames that cannot be read."""
    if isinstance(finding, TextChanged | ReasoningChanged):
        for broken in case.grammar:
            if _text_lost(case, broken):
                return signature_of(broken)
    return None


def _lacks(broken: GrammarBroken, finding: FrameFinding) -> bool:
    """Whether the side that broke its grammar does not have a frame, or both sides broke it."""
    absent = FrameAdded if broken.side == "legacy" else FrameDropped
    return broken.side == "both" or isinstance(finding, absent)


def _index(broken: GrammarBroken, finding: FrameFinding) -> int:
    """Return where a finding stands in the stream that broke its grammar."""
    return finding.at_legacy if broken.side == "legacy" else finding.at_graph


def _streams(case: Differences, broken: GrammarBroken) -> tuple[EventStream, EventStream]:
    """Return the stream that broke its grammar, and the other one."""
    streams = case.graph, case.legacy
    return streams[::-1] if broken.side == "legacy" else streams


def _forbidden(finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether a frame one side sent too many is the one its grammar stumbled over."""
    start = _index(broken, finding)
    return not _lacks(broken, finding) and start <= broken.at < start + finding.count


def _unreadable(case: Differences, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether a frame is unread in the way of the one that broke the grammar before it.

    A grammar is broken once: all other frames that break it in that way follow.
    """
    read = FrameAdded | FrameDropped | FrameReplaced | FrameChanged
    (stream, _), at = _streams(case, broken), _index(broken, finding)
    if not isinstance(finding, read) or _lacks(broken, finding):
        return False
    if broken.at >= len(stream.events):
        return False
    way = _way(case, stream.events[broken.at])
    count = 1 if isinstance(finding, FrameChanged) else finding.count
    spoilt = stream.events[at : at + count]
    if way is not None and spoilt and all(_way(case, it) == way for it in spoilt):
        return True
    return isinstance(finding, FrameReplaced) and _renamed(finding) in {
        _renamed(other)
        for other in case.frames
        if isinstance(other, FrameReplaced) and _index(broken, other) == broken.at
    }


def _way(case: Differences, event: StreamEvent) -> object:
    """Return why an event is not read: what is wrong with it, or its name where that is unknown."""
    if event.fault is not None:
        return event.fault
    return event.name if event.name not in case.names else None


def _renamed(finding: FrameReplaced) -> tuple[str, str]:
    """Return what differs between the names of frames that stand in each other's place."""
    before, _, after = finding.path.rpartition("].")[2].partition("→")
    return core(before, after)


def _lost_a_piece(case: Differences, finding: FrameFinding, broken: GrammarBroken) -> bool:
    """Whether arguments put together from many frames may lack what stood in an illegible one."""
    if not isinstance(finding, FrameChanged) or _ARGUMENTS not in f"{finding.path}{finding.detail}":
        return False
    stream, _ = _streams(case, broken)
    if not _index(broken, finding) < broken.at < len(stream.events):
        return False
    return stream.events[broken.at].fault is not None


def _unread(case: Differences, broken: GrammarBroken) -> list[int]:
    """List the events of one side that are unread in the way of the one that broke its grammar."""
    spoilt, _ = _streams(case, broken)
    if broken.side == "both" or broken.at >= len(spoilt.events):
        return []
    way = _way(case, spoilt.events[broken.at])
    return [k for k, it in enumerate(spoilt.events) if way is not None and _way(case, it) == way]


def _text_lost(case: Differences, broken: GrammarBroken) -> bool:
    """Whether all one side's text lacks is what stood in frames that are not read."""
    unread = _unread(case, broken)
    spoilt, sound = _streams(case, broken)
    texts = (spoilt.text, sound.text), (spoilt.reasoning, sound.reasoning)
    return bool(unread) and all(
        _with_holes(lacking, [spoilt.reached[k][channel] for k in unread], whole)
        for channel, (lacking, whole) in enumerate(texts)
    )


def _cuts_lost(case: Differences, broken: GrammarBroken) -> bool:
    """Whether one side's text has a piece less for every frame that is not read."""
    lost = len(_unread(case, broken))
    left, whole = (sum(it.bare for it in side.events) for side in _streams(case, broken))
    return bool(lost) and left + lost == whole


def _with_holes(lacking: str, holes: list[int], whole: str) -> bool:
    """Whether a text is another one that lacks something at its holes, and nowhere else."""
    pieces = [lacking[a:b] for a, b in pairwise((0, *holes, len(lacking)))]
    if not (whole.startswith(pieces[0]) and whole.endswith(pieces[-1])):
        return False
    come, end = len(pieces[0]), len(whole) - len(pieces[-1])
    for piece in pieces[1:-1]:
        found = whole.find(piece, come, end)
        if found < 0:
            return False
        come = found + len(piece)
    return come <= end
