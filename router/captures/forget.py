"""Forgets users and conversations: files that hold them are rewritten without them."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from cutover.records import RecordDamaged, RunRecord, decode
from router.captures.reader import file_lines
from router.captures.redaction import Redactor
from router.captures.store import Store


@dataclass(slots=True)
class Removed:
    """Lines removed and their exchanges; `left` are files that cannot be read or written."""

    lines: int = 0
    exchanges: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)


def forget(
    store: Store,
    users: Collection[str],
    conversations: Collection[tuple[str, str]] = (),
    redactor: Redactor | None = None,
    *,
    dry_run: bool = False,
) -> Removed:
    """Remove the lines of users, and of conversations, each a flow and an id.

    A line goes where an id is a whole value in the request, in the address, or in what was asked of
    an effect or a model; the redactor finds ids that it has replaced. Files are searched as they
    lie: have writers write first. A file that is torn is left and named: what of it can be read,
    can be deleted with it alone.
    """
    done = Removed()
    if not dry_run:
        store.sweep()
    for name in store.names():
        flow = name.removeprefix("flow=").partition("/")[0]
        wanted = _Wanted(
            {*users, *(one for where, one in conversations if where == flow)}, redactor
        )
        damage: Counter[str] = Counter()
        lines = [(line, wanted.exchange(line)) for line in file_lines(store, name, damage)]
        kept = [line for line, exchange in lines if exchange is None]
        try:
            if len(kept) < len(lines) and not damage and not dry_run:
                store.replace(name, kept)
        except OSError:
            damage["not_written"] += 1
        if damage:
            done.left.append(name)
        elif len(kept) < len(lines):
            done.lines += len(lines) - len(kept)
            done.exchanges |= {exchange for _, exchange in lines if exchange}
    return done


class _Wanted:
    """Ids, as they stand in captures."""

    def __init__(self, ids: Collection[str], redactor: Redactor | None) -> None:
        self._values = set(ids)
        self._ends: tuple[str, ...] = ()
        if redactor is not None:
            self._values |= {redactor.number(one) for one in ids if one.isdigit()}
            self._ends = tuple(f":{one}>" for value in ids for one in redactor.digests(value))
        self._marks = [one.encode() for one in (*self._values, *self._ends)]
        # Others may stand there escaped.
        self._plain = all(re.fullmatch(r"[\w:>.-]+", one, re.ASCII) for one in self._values)

    def exchange(self, line: bytes) -> str | None:
        """Return the exchange of a line that holds an id; None where it holds none."""
        marked = any(mark in line for mark in self._marks)
        if self._plain and not marked:
            return None
        try:
            record = decode(line, RunRecord)
        except RecordDamaged:
            return "" if marked else None
        asked = [entry.canonical for entry in record.tape.entries] if record.tape else []
        asked += [play.canonical for play in record.plays if play.canonical]
        for text in (record.path, record.request, *asked):
            for one in _values(text):
                if one in self._values or one.endswith(self._ends):
                    return record.exchange
        return None


_json = json.JSONDecoder(
    strict=False,
    object_pairs_hook=lambda pairs: [one for pair in pairs for one in pair],  # a name may be twice
    parse_int=str,
    parse_float=lambda number: str(float(number)).removesuffix(".0"),
)


def _values(value: Any) -> Iterator[str]:
    """Yield the whole values in a text: in JSON, also within a string, an address or a form."""
    if isinstance(value, list):
        for one in value:
            yield from _values(one)
    elif isinstance(value, str) and value.lstrip()[:1] in {"{", "[", '"'}:
        try:
            yield from _values(_json.decode(value.strip()))
        except (ValueError, RecursionError):
            yield value
    elif isinstance(value, str):
        yield value
        if " " not in value:
            yield from re.split(r"[/?&=]", unquote(value))
