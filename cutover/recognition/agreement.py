"""Whether the answers of two services are streams of one dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from contract.flow import FlowSpec
from contract.wire import EVERY, Dialect
from cutover.recognition.recognition import Recognised, read_as


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was recognised in the answers of the old and the new service.

    `same` is whether one dialect reads both; then it is that of both. `notes` say what one of the
    streams has and the other has not.
    """

    old: Recognised
    new: Recognised
    same: bool
    notes: tuple[str, ...] = ()


def agree(old: Recognised, new: Recognised, flows: Mapping[str, FlowSpec]) -> Agreement:
    """Find one dialect for two answers: the old service's if it reads both, else the new one's."""
    if not (old.name and old.name == new.name):
        specs = {spec.dialect.name: spec for spec in flows.values()}
        new_as_old = read_as(old.dialect, new.answer, specs.get(old.name))
        old_as_new = read_as(new.dialect, old.answer, specs.get(new.name))
        if new_as_old is not None:
            dialect = _joined(old, new)
            old, new = replace(old, dialect=dialect), replace(new_as_old, name=old.name)
        elif old_as_new is not None:
            old = replace(old_as_new, name=new.name)
        else:
            return Agreement(old, new, same=False)
    return Agreement(old, new, same=True, notes=_notes(old, new))


def _joined(old: Recognised, new: Recognised) -> Dialect:
    """Return the old service's dialect with what the new one's adds, where both are proposals.

    A second answer may have other ids, and fields that stand beside its text.
    """
    one, other = old.dialect, new.dialect
    if old.name or new.name or (one.event, one.text) != (other.event, other.text):
        return one
    ignore = dict(one.ignore)
    for name, paths in other.ignore.items():
        known = {*ignore.get(name, ()), *ignore.get(EVERY, ())}
        added = tuple(path for path in paths if path not in known)
        if added:
            ignore[name] = (*ignore.get(name, ()), *added)
    return msgspec.structs.replace(one, ignore=ignore)


def _notes(old: Recognised, new: Recognised) -> tuple[str, ...]:
    names = old.reading.names.keys(), new.reading.names.keys()
    alone = {
        "the old service": sorted(names[0] - names[1]),
        "the new one": sorted(names[1] - names[0]),
    }
    return tuple(f"only {who} sends {', '.join(sent)}" for who, sent in alone.items() if sent)
