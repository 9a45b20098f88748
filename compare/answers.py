"""Answers: the texts of captured pairs, for a judge of their quality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from compare.input.captures import Exchange, HalfExchanges
from compare.input.damage import ILLEGIBLE
from compare.input.pairing import CONTROL, Unpaired, pair_of
from compare.input.segments import find_segments
from compare.input.selection import EVERYTHING, Selection
from compare.noise.control import owning_tape
from compare.noise.distances import AnswerReader
from compare.noise.messages import read_exchanges
from compare.streams.two_formats import DialectNotConfigured
from contract.flow import FlowSpec
from contract.records import RunRecord
from evidence.preferences import AnswerPair, Sampler

EQUAL = "equal answers"
_MESSAGES = "messages"


class DrawnAnswers(NamedTuple):
    """Pairs to judge, pairs of the control with itself, and how many exchanges are neither."""

    pairs: Sequence[AnswerPair]
    itself: Sequence[AnswerPair]
    left_out: Counter[str]
    offered: int


def draw_answers(
    place: str,
    flows: Mapping[str, FlowSpec],
    size: int,
    seed: int,
    *,
    itself: int = 0,
    selection: Selection = EVERYTHING,
) -> DrawnAnswers:
    """Draw up to `size` pairs with unlike answers from the captures at a path or URL.

    `itself` pairs are of two runs of the control with unlike answers; as far as there are too few,
    of one answer twice. Raises `CapturesUnreadable`.
    """
    left_out: Counter[str] = Counter()
    sampler = Sampler(size, seed)
    unlike, same = Sampler(itself, seed), Sampler(itself, seed)
    readers = {name: AnswerReader(spec) for name, spec in flows.items()}
    known: set[int] = set()
    for exchange in _exchanges_at(place, left_out):
        first = exchange[0]
        if not selection.holds(exchange):
            continue
        reader = readers.get(first.flow)
        if reader is None:
            left_out["of another flow"] += 1
            continue
        if (identity := hash(first.exchange)) in known:
            left_out["read before"] += 1
            continue
        known.add(identity)
        try:
            _offer(exchange, reader, sampler, left_out)
            if itself:
                _offer_itself(exchange, reader, unlike, same)
        except DialectNotConfigured as trouble:
            left_out[str(trouble)] += 1
    taken = {pair.exchange for pair in unlike.pairs}
    others = (pair for pair in same.pairs if pair.exchange not in taken)
    return DrawnAnswers(sampler.pairs, [*unlike.pairs, *others][:itself], left_out, sampler.offered)


def _exchanges_at(place: str, left_out: Counter[str]) -> Iterator[Exchange]:
    halves = HalfExchanges()
    yield from read_exchanges(find_segments(place), left_out, halves)
    yield from (owning_tape(read.runs) for read in halves.rest())


def _offer(
    exchange: Exchange, reader: AnswerReader, sampler: Sampler, left_out: Counter[str]
) -> None:
    pair = pair_of(exchange)
    if isinstance(pair, Unpaired):
        left_out[pair.reason] += 1
        return
    runs = pair.control, pair.candidate
    if any(run.outcome != "completed" for run in runs):
        left_out["a run that did not complete"] += 1
        return
    if any(run.history is not None and run.history.other for run in runs):
        left_out["earlier answers differ"] += 1
        return
    control, candidate = (reader.stream(run).text for run in runs)
    if control == candidate:
        left_out[EQUAL] += 1
        return
    sampler.add(_answer_pair(exchange, control, candidate))


def _offer_itself(exchange: Exchange, reader: AnswerReader, unlike: Sampler, same: Sampler) -> None:
    runs = [run for run in exchange if run.stack == CONTROL and run.outcome == "completed"]
    texts = [*dict.fromkeys(text for run in runs if (text := reader.stream(run).text))]
    if not texts:
        return
    first = texts[0]
    same.add(_answer_pair(exchange, first, first))
    if len(texts) > 1:
        unlike.add(_answer_pair(exchange, first, texts[1]))


def _answer_pair(exchange: Exchange, control: str, candidate: str) -> AnswerPair:
    first = exchange[0]
    return AnswerPair(
        first.exchange, first.flow, first.began, request_text(exchange), control, candidate
    )


def request_text(runs: Iterable[RunRecord]) -> str:
    """Return the request of an exchange as lines to read, "" where it is not recorded.

    A field a line; a list of messages as one line a message, with its role.
    """
    body = next((run.request.body for run in runs if run.request is not None), None)
    if body is None:
        return ""
    try:
        value = msgspec.json.decode(body)
    except ILLEGIBLE:
        return bytes(body).decode("utf-8", "replace")
    if not isinstance(value, dict):
        return _text(value)
    lines = []
    for name, field in value.items():
        if name == _MESSAGES and isinstance(field, list):
            lines += [_message(one) for one in field]
        elif field not in (None, "", [], {}):
            lines.append(f"{name}: {_text(field)}")
    return "\n".join(lines)


def _message(message: Any) -> str:
    if not isinstance(message, dict):
        return _text(message)
    return f"{message.get('role', 'message')}: {_text(message.get('content'))}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
