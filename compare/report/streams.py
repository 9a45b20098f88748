"""Two runs of an exchange side by side: texts, events and calls, word by word where they differ."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

import msgspec

from compare.differences import HELD_US, Pair
from compare.differences.runs import read_run
from compare.differences.values import common
from compare.rows import PairRow
from cutover.flow import Flow
from cutover.records import RunRecord, TapeRecord

MOST_ROWS: Final = 120
"""Rows of a pair that are shown."""
MOST_TEXT: Final = 4_000
"""Characters that are shown of one text."""
_BESIDE_ROWS, _BESIDE_TEXT = 3, 160
"""Equal rows, and equal characters, that are shown beside a difference."""
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+|\s+|.", re.DOTALL)

Segment = tuple[Literal["same", "own", "left_out"], str]
"""A stretch of text: in both runs, in this one alone, or left out, and how long it is."""


class Cell(msgspec.Struct, frozen=True):
    """A text, an event or a call of one run, `at` in milliseconds of tape time."""

    at: float
    name: str
    text: tuple[Segment, ...]


class SideBySide(msgspec.Struct, frozen=True):
    """What legacy did beside what graph did, behind `left_out` rows that are equal.

    What is the same and comes much later `differs`, too.
    """

    legacy: Cell | None
    graph: Cell | None
    differs: bool = False
    left_out: int = 0


class Exemplar(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that differs, with its request and how both runs ended."""

    exchange: str
    flow: str
    at: int
    causes: tuple[str, ...]
    request: str
    served: str
    outcomes: tuple[str, str]
    rows: tuple[SideBySide, ...]


class _Block(NamedTuple):
    """What is one row of a run."""

    name: str
    text: str
    at: int

    def cell(self, text: Sequence[Segment]) -> Cell:
        return Cell(self.at / 1e3, self.name, tuple(one for one in text if one[1]))


def exemplar(pair: Pair, row: PairRow, flow: Flow) -> Exemplar:
    """Return a pair as it is shown."""
    legacy, graph = (_blocks(one, pair.tape, flow) for one in (pair.legacy, pair.graph))
    return Exemplar(
        exchange=row.exchange,
        flow=row.flow,
        at=row.at,
        causes=tuple(dict.fromkeys(one.cause(row.flow) for one in row.causes)),
        request=_cut(_pretty(pair.served.request)),
        served=pair.served.stack,
        outcomes=(_outcome(pair.legacy), _outcome(pair.graph)),
        rows=tuple(_shortened([*_rows(legacy, graph)])),
    )


def alone(run: RunRecord, tape: TapeRecord, flow: Flow) -> Exemplar:
    """Return a run that has no other one beside it as it is shown."""
    blocks, legacy = _blocks(run, tape, flow), run.stack == "legacy"
    return Exemplar(
        exchange=run.exchange,
        flow=run.flow,
        at=run.at,
        causes=(),
        request=_cut(_pretty(run.request)),
        served=run.stack,
        outcomes=(_outcome(run), "") if legacy else ("", _outcome(run)),
        rows=tuple(_shortened([*(_rows(blocks, []) if legacy else _rows([], blocks))])),
    )


def _outcome(run: RunRecord) -> str:
    fields = msgspec.to_builtins(run.outcome)
    return " ".join(str(one) for one in (fields.pop("type"), *fields.values()) if one)


def _blocks(run: RunRecord, tape: TapeRecord, flow: Flow) -> list[_Block]:
    """Return what a run asked, then what came; a channel's text stands where it begins."""
    read = read_run(run, tape, flow)
    calls = [_Block(f"→ {one.name}", _pretty(one.canonical), one.at) for one in read.calls]
    came = [_Block(name, text, read.stamps[name][0][1]) for name, text in read.texts.items()]
    came += [
        _Block(one.name, _pretty(one.rest.decode("utf-8", "replace")), one.at)
        for one in (*read.events, *read.streamed)
    ]
    return [*sorted(calls, key=lambda one: one.at), *sorted(came, key=lambda one: one.at)]


def _pretty(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def _glimpse(text: str) -> str:
    """Return the beginning of what is the same in both, on one line."""
    line = re.sub(r"\s+", " ", text)
    return line if len(line) <= _BESIDE_TEXT else f"{line[:_BESIDE_TEXT]} …"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … {len(text):,} characters"


def _rows(legacy: Sequence[_Block], graph: Sequence[_Block]) -> Iterator[SideBySide]:
    """Yield the rows of two runs; blocks of one name that differ stand beside each other."""
    blocks = [one[:2] for one in legacy], [one[:2] for one in graph]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, *blocks).get_opcodes():
        ours, theirs = legacy[i:i_end], graph[j:j_end]
        if tag == "equal":
            for one, other in zip(ours, theirs, strict=True):
                text: Sequence[Segment] = [("same", _glimpse(one.text))]
                yield SideBySide(one.cell(text), other.cell(text), abs(one.at - other.at) > HELD_US)
            continue
        names = [one.name for one in ours], [one.name for one in theirs]
        for kind, k, k_end, m, m_end in SequenceMatcher(None, *names).get_opcodes():
            if kind == "equal":
                for one, other in zip(ours[k:k_end], theirs[m:m_end], strict=True):
                    mine, its = words(one.text, other.text)
                    yield SideBySide(one.cell(mine), other.cell(its), differs=True)
                continue
            for one in ours[k:k_end]:
                yield SideBySide(one.cell([("own", _cut(one.text))]), None, differs=True)
            for one in theirs[m:m_end]:
                yield SideBySide(None, one.cell([("own", _cut(one.text))]), differs=True)


def words(legacy: str, graph: str) -> tuple[list[Segment], list[Segment]]:
    """Return two texts in segments; of long stretches that are the same the ends are left."""
    ours, theirs = _WORD.findall(legacy), _WORD.findall(graph)
    head = common(ours, theirs)
    tail = common(ours[head:][::-1], theirs[head:][::-1])
    mine, its = ours[head : len(ours) - tail], theirs[head : len(theirs) - tail]
    left: list[Segment] = _elided(ours[:head], first=True, last=head == len(ours))
    right = left.copy()
    for tag, i, i_end, j, j_end in SequenceMatcher(None, mine, its).get_opcodes():
        if tag == "equal":
            left += (same := _elided(mine[i:i_end]))
            right += same
        else:
            left.append(("own", _cut("".join(mine[i:i_end]))))
            right.append(("own", _cut("".join(its[j:j_end]))))
    same = _elided(ours[len(ours) - tail :], last=True)
    return left + same, right + same


def _elided(words: Sequence[str], *, first: bool = False, last: bool = False) -> list[Segment]:
    """Return words that are the same in both; of many those beside a difference are left."""
    if len(text := "".join(words)) <= 3 * _BESIDE_TEXT:
        return [("same", text)]
    head, tail = "" if first else text[:_BESIDE_TEXT], "" if last else text[-_BESIDE_TEXT:]
    left_out = f"{len(text) - len(head) - len(tail):,}"
    return [("same", head), ("left_out", left_out), ("same", tail)]


def _shortened(rows: Sequence[SideBySide]) -> Iterator[SideBySide]:
    """Yield the rows near a difference, `MOST_ROWS` at most; the last one counts what is left."""
    differ = [at for at, row in enumerate(rows) if row.differs]
    near = {at for one in differ for at in range(one - _BESIDE_ROWS, one + _BESIDE_ROWS + 1)}
    shown = [at for at in range(len(rows)) if at in near or not near][:MOST_ROWS]
    for at, before in zip(shown, [-1, *shown], strict=False):
        yield msgspec.structs.replace(rows[at], left_out=at - before - 1)
    if left := len(rows) - 1 - (shown[-1] if shown else -1):
        yield SideBySide(None, None, left_out=left)
