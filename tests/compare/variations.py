"""Pairs that say and do the same otherwise: other ids and times, other cuts, another order."""

import random
import re
from collections.abc import Callable, Sequence

import msgspec

from compare.differences import Pair
from cutover.flow import Flow, Frame
from cutover.records import FrameRecord, PlayRecord, RunRecord

_GENERATED = re.compile(r"(?<![0-9a-f])(?<!blake2b=)[0-9a-f]{32}(?![0-9a-f])")
_MOMENT = re.compile(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}")
LATE_US, GAP_US = 300_000, 600_000
"""How much later text may come, and how much of it together: less than what is held back."""


def varied(pair: Pair, flow: Flow, drawn: random.Random, *, moved: bool = True) -> Pair:
    """Return a pair whose played run is equal to the served one, and looks otherwise.

    `moved`: it comes at other times, and reads in another order, too.
    """
    run, (names, prompts) = pair.played, _renamed(drawn)
    recut = _recut(flow, run.frames, drawn)
    late = sorted(drawn.randrange(LATE_US) for _ in recut)
    drawn.shuffle(late)
    stamp, frames = 0, list[FrameRecord]()
    for frame, later in zip(recut, late, strict=True):
        stamp = max(stamp, frame.at + later * moved)
        frames.append(FrameRecord.of(stamp, names(frame.data.decode()).encode()))
    plays: Sequence[PlayRecord] = [
        _asking(pair, play, prompts if play.name.startswith("model.") else names)
        for play in run.plays
    ]
    plays = _reordered(pair, plays, drawn) if moved else plays
    line = msgspec.structs.replace(run, frames=tuple(frames), plays=tuple(plays))
    return Pair(pair.served, line, pair.tape)


def _renamed(drawn: random.Random) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return what gives each generated id another one, and each moment of a prompt a later one."""
    known: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        new = f"{drawn.getrandbits(128):032x}"
        return known.setdefault(found[0], new)

    def later(found: re.Match[str]) -> str:
        new = f"2027-01-{drawn.randint(1, 28):02}T10:{len(known):02}:11.{drawn.randrange(1000):03}"
        return known.setdefault(found[0], new)

    def names(text: str) -> str:
        return _GENERATED.sub(other, text)

    return names, lambda text: _MOMENT.sub(later, names(text))


def _asking(pair: Pair, play: PlayRecord, names: Callable[[str], str]) -> PlayRecord:
    """Return a call that asks for the same with its own ids; such a call is found by its name."""
    asked = play.canonical or pair.tape.entries[play.entry or 0].canonical
    if (own := names(asked)) == asked:
        return play
    return PlayRecord(play.name, "nearest", play.entry, own)


def _reordered(
    pair: Pair, plays: Sequence[PlayRecord], drawn: random.Random
) -> Sequence[PlayRecord]:
    """Return the calls with reads anywhere among the writes, which stay in their order."""
    entries = pair.tape.entries
    writes = [one for one in plays if entries[one.entry or 0].writes]
    order = list(plays)
    drawn.shuffle(order)
    left = iter(writes)
    return [next(left) if entries[one.entry or 0].writes else one for one in order]


def _recut(
    flow: Flow, frames: Sequence[FrameRecord], drawn: random.Random
) -> Sequence[FrameRecord]:
    """Return a stream whose pieces of text are cut elsewhere, or come together."""
    read = [next(iter(flow.stored_frames([one.data])), None) for one in frames]
    texts = [_piece(*both) for both in zip(frames, read, strict=True)]
    out: list[FrameRecord] = []
    held: list[tuple[str, int]] = []
    for place, record in enumerate(frames):
        text, frame = texts[place], read[place]
        pure = frame is not None and frame.name == "SEND" and not frame.rest
        if pure and out[-1] is frames[place - 1] and drawn.random() < 1 / 3:
            continue  # the next one says all so far
        if text is None:
            out.append(record)
            continue
        held.append((text, record.at))
        if place + 1 == len(frames) or texts[place + 1] is None or not _alike(*read[place:][:2]):
            out += _pieces(record, text, held, drawn)
            held.clear()
    return out


def _piece(record: FrameRecord, frame: Frame | None) -> str | None:
    """Return the text of a frame that is nothing but a piece of it, written once in its bytes."""
    if frame is None or frame.rest or len(frame.texts) != 1 or "call" in frame.texts[0][0]:
        return None
    text = frame.texts[0][1]
    alone = frame.name != "SEND" and record.data.count(msgspec.json.encode(text)) == 1
    return text if alone else None


def _alike(one: Frame | None, other: Frame | None) -> bool:
    return bool(one and other and one.texts[0][0] == other.texts[0][0])


def _pieces(
    template: FrameRecord, last: str, texts: Sequence[tuple[str, int]], drawn: random.Random
) -> list[FrameRecord]:
    """Return frames of a text in other pieces, each when its last character had come."""
    whole = "".join(text for text, _ in texts)
    stamps = [at for text, at in texts for _ in text]
    made: list[FrameRecord] = []
    begin, old = 0, msgspec.json.encode(last)
    while begin < len(whole):
        most = sum(at <= stamps[begin] + GAP_US for at in stamps)
        cut = drawn.randint(begin + 1, most)
        new = msgspec.json.encode(whole[begin:cut])
        made.append(FrameRecord.of(stamps[cut - 1], template.data.replace(old, new)))
        begin = cut
    return made


def line_pair(pair: Pair) -> tuple[RunRecord, RunRecord]:
    """Return the lines of a pair as captures have them: that which served holds the tape."""
    return msgspec.structs.replace(pair.served, tape=pair.tape), pair.played
