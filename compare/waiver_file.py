"""The file of waivers as text: a waiver is written in, everything else stays as it stands."""

from __future__ import annotations

import json
import re

from compare.waivers import Waiver, fault_of, waivers_of
from contract.declarations import DeclarationRefused

_HEADER = re.compile(r"^\s*\[")
_OWN_KEYS = re.compile(r"^\s*(owner|reason|until|flow)\s*=")


def with_waiver(text: str, file: str, finding: str, waiver: Waiver, *, replace: bool) -> str:
    """Give the file's text with one waiver more, or with the one of that id replaced.

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
