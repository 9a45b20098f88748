"""Forgets users and conversations: files that hold them are rewritten without them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import unquote

from cutover.records import RecordDamaged, RunRecord, decode
from router.captures.reader import file_lines
from router.captures.redaction import Redactor
from router.captures.store import Store
from router.captures.texts import StoredText


@dataclass(slots=True)
class Removed:
    """What was done: lines removed and their exchanges, files rewritten or removed.

    `left` are files that cannot be read or written.
    """

    lines: int = 0
    files: int = 0
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
    done, wanted = Removed(), dict[str, _Wanted]()
    if not dry_run:
        store.remove_unfinished()
    for name in store.names():
        flow = name.removeprefix("flow=").partition("/")[0]
        if flow not in wanted:
            of_flow = {one for where, one in conversations if where == flow}
            wanted[flow] = _Wanted({*users, *of_flow}, redactor)
        damage: Counter[str] = Counter()
        lines = list(file_lines(store, name, damage))
        exchanges = [wanted[flow].exchange(line) for line in lines]
        kept = [line for line, found in zip(lines, exchanges, strict=True) if found is None]
        if len(kept) < len(lines) and not damage and not dry_run:
            _rewrite(store, name, kept, damage)
        if damage:
            done.left.append(name)
        elif len(kept) < len(lines):
            done.lines += len(lines) - len(kept)
            done.files += 1
            done.exchanges |= {found for found in exchanges if found}
    return done


def _rewrite(store: Store, name: str, lines: list[bytes], damage: Counter[str]) -> None:
    try:
        if lines:
            store.put(name, b"\n".join(lines) + b"\n")
        else:
            store.remove(name)
    except OSError:
        damage["not_written"] += 1


class _Wanted:
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
        if self._plain and not any(mark in line for mark in self._marks):
            return None
        try:
            record = decode(line, RunRecord)
        except RecordDamaged:
            return "" if any(mark in line for mark in self._marks) else None
        asked = [entry.canonical for entry in record.tape.entries] if record.tape else []
        asked += [play.canonical for play in record.plays if play.canonical]
        values = {
            spot.text for text in (record.request, *asked) for spot in StoredText(text).spots
        } | set(re.split(r"[/?&=]", unquote(record.path)))
        known = values & self._values or any(one.endswith(self._ends) for one in values)
        return record.exchange if known else None
