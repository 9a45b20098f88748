"""Waivers: differences a team accepts, with an owner, a reason and a last day."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import msgspec

from compare.input.files import read_text
from contract.declarations import DeclarationRefused, converted, parsed

Standing = Literal["in force", "unused", "expired"]
"""`in force`: it hides something; `unused`: it could, but nothing was found; `expired`: no more."""

ID_SHAPE = re.compile(r"[0-9a-f]{12}")
_NO_TEXT = re.compile("[\ud800-\udfff]")


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One accepted cause; it holds up to and with the day `until`, in one flow or in all."""

    owner: str
    reason: str
    until: date
    flow: str = ""


@dataclass(frozen=True, slots=True)
class Waivers:
    """The waivers of a file by finding id, as they stand on one day (UTC)."""

    today: date
    by_id: Mapping[str, Waiver] = field(default_factory=dict)

    def of(self, finding: str, flow: str) -> Waiver | None:
        """Return the waiver of a finding in a flow, expired or not."""
        waiver = self.by_id.get(finding)
        return waiver if waiver is not None and waiver.flow in {"", flow} else None

    def in_force(self, waiver: Waiver | None) -> bool:
        """Whether a waiver still hides what it was made for."""
        return waiver is not None and waiver.until >= self.today

    def standing(self, waiver: Waiver, exchanges: int) -> Standing:
        """Return how a waiver stands that fits findings in so many exchanges."""
        if not self.in_force(waiver):
            return "expired"
        return "in force" if exchanges else "unused"


NO_WAIVERS = Waivers(date.max)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    waiver: dict[str, dict[str, Any]] = {}


def read_waivers(path: Path) -> dict[str, Waiver]:
    """Read a file of waivers; raises `DeclarationRefused`."""
    return waivers_of(read_text(path), str(path))


def waivers_of(text: str, file: str) -> dict[str, Waiver]:
    """Read waivers from TOML; raises `DeclarationRefused` naming file and key."""
    named = converted(parsed(text, file), _File, file).waiver
    made: dict[str, Waiver] = {}
    for name, table in named.items():
        key = f"waiver.{name}"
        waiver = converted(table, Waiver, file, key)
        why = fault_of(name, waiver)
        if why:
            raise DeclarationRefused(file, key, why)
        made[name] = waiver
    return made


def fault_of(finding: str, waiver: Waiver) -> str | None:
    """Describe what is wrong with a waiver, whatever the day; None when nothing is."""
    if not ID_SHAPE.fullmatch(finding):
        return (
            f"{finding!r} is no finding id: those are 12 hexadecimal digits, as reports show them"
        )
    for name in ("owner", "reason", "flow"):
        if _NO_TEXT.search(getattr(waiver, name)):
            return f"{name} is no text: it was typed in another encoding than this terminal's"
    for name, value in (("owner", waiver.owner), ("reason", waiver.reason)):
        if not value.strip():
            return f"{name} is empty: write {'who answers for it' if name == 'owner' else 'why'}"
    return None


_HEADER = re.compile(r"^\s*\[")
_OWN_KEYS = re.compile(r"^\s*(owner|reason|until|flow)\s*=")


def with_waiver(text: str, file: str, finding: str, waiver: Waiver, *, replace: bool) -> str:
    """Return the file's text with one waiver more, or with the one of that id replaced.

    Raises `DeclarationRefused`: the waiver is incomplete, the file holds one for that id (unless
    `replace`), or it is written in a way this cannot edit.
    """
    why = fault_of(finding, waiver)
    if why:
        raise DeclarationRefused(file, f"waiver.{finding}", why)
    before = waivers_of(text, file)
    if finding in before and not replace:
        held = before[finding]
        said = f"{held.owner!r} has waived it until {held.until}; --replace writes over that"
        raise DeclarationRefused(file, f"waiver.{finding}", said)
    after = _replaced(text, finding, waiver) if finding in before else _added(text, finding, waiver)
    _check(after, file, finding, before | {finding: waiver})
    return after


def _check(text: str, file: str, finding: str, due: dict[str, Waiver]) -> None:
    """Read back what was written: better no edit than a wrong one."""
    try:
        if waivers_of(text, file) == due:
            return
    except DeclarationRefused:
        pass
    why = "it is written in an unusual way; please change it by hand"
    raise DeclarationRefused(file, f"waiver.{finding}", why)


def _added(text: str, finding: str, waiver: Waiver) -> str:
    head = text.rstrip("\n")
    return "\n".join([*([head, ""] if head else []), f"[waiver.{finding}]", *_lines(waiver), ""])


def _replaced(text: str, finding: str, waiver: Waiver) -> str:
    """Put new lines in the place of the old ones; comments inside the table stay."""
    lines = text.split("\n")
    header = re.compile(rf"""^\s*\[\s*waiver\s*\.\s*["']?{finding}["']?\s*\]""")
    start = next((k for k, line in enumerate(lines) if header.match(line)), len(lines))
    end = next((k for k in range(start + 1, len(lines)) if _HEADER.match(lines[k])), len(lines))
    kept = [line for line in lines[start + 1 : end] if not _OWN_KEYS.match(line)]
    return "\n".join([*lines[: start + 1], *_lines(waiver), *kept, *lines[end:]])


def _lines(waiver: Waiver) -> list[str]:
    flow = [f"flow = {quoted(waiver.flow)}"] if waiver.flow else []
    owner, reason = quoted(waiver.owner), quoted(waiver.reason)
    return [f"owner = {owner}", f"reason = {reason}", f"until = {waiver.until}", *flow]


def quoted(text: str) -> str:
    """Write a TOML string: JSON's escapes, and DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
