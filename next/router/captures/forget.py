"""Forgets users and conversations: files that hold them are rewritten without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from cutover.records import RecordDamaged, RunRecord, decode
from router.captures.reader import file_lines
from router.captures.redaction import Redactor
from router.captures.store import Store
from router.captures.texts import Part


@dataclass(slots=True)
class Forgotten:
    """What was done: lines removed, files rewritten or removed, files that cannot be read."""

    lines: int = 0
    files: int = 0
    unreadable: list[str] = field(default_factory=list)


def forget(store: Store, ids: Collection[str], redactor: Redactor | None = None) -> Forgotten:
    """Remove the lines of users or conversations; the redactor finds ids that it has replaced.

    A line goes where an id is a whole value in the request, in the address, or in what was asked of
    an effect or a model. Files are searched as they lie: have writers write first. A file that is
    torn is left and named: what of it can be read, can be deleted with it alone.
    """
    done, wanted = Forgotten(), _Wanted(ids, redactor)
    store.remove_unfinished()
    for name in store.names():
        damage: Counter[str] = Counter()
        lines = list(file_lines(store, name, damage))
        if damage:
            done.unreadable.append(name)
            continue
        kept = [line for line in lines if not wanted.within(line)]
        if len(kept) == len(lines):
            continue
        if kept:
            store.put(name, b"\n".join(kept) + b"\n")
        else:
            store.remove(name)
        done.lines += len(lines) - len(kept)
        done.files += 1
    return done


class _Wanted:
    def __init__(self, ids: Collection[str], redactor: Redactor | None) -> None:
        self._values = set(ids)
        self._ends: tuple[str, ...] = ()
        if redactor is not None:
            self._values |= {redactor.number(one) for one in ids if one.isdigit()}
            self._ends = tuple(f":{one}>" for value in ids for one in redactor.digests(value))

    def within(self, line: bytes) -> bool:
        """Whether a line holds one of the ids."""
        try:
            record = decode(line, RunRecord)
        except RecordDamaged:
            return any(value.encode() in line for value in (*self._values, *self._ends))
        asked = [entry.canonical for entry in record.tape.entries] if record.tape else []
        asked += [play.canonical for play in record.plays if play.canonical]
        values = {
            spot.text for text in (record.request, *asked) for spot in Part(text).spots
        } | set(record.path.split("/"))
        return bool(values & self._values) or any(one.endswith(self._ends) for one in values)
