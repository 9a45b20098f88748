"""Waivers: differences a team accepts, with an owner, a reason and a last day."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compare.clusters import Cluster
from compare.input.files import read_text
from contract.declarations import DeclarationRefused, convert_to_struct, parse_toml
from evidence.intervals import share_interval

Standing = Literal["in force", "unused", "expired", "lapsed"]
"""`in force`: it hides something; `unused`: it could, but nothing was found; `expired`: no more;
`lapsed`: its cause has grown or changed since it was accepted."""

ID_SHAPE = re.compile(r"[0-9a-f]{12}")
_NO_TEXT = re.compile("[\ud800-\udfff]")


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One accepted cause; it holds up to and with the day `until`, in one flow or in all.

    It lapses when its cause is in more than the share `at_most` of a flow's compared exchanges, or
    changes what is not among `classes`. Waivers of earlier versions have neither.
    """

    owner: str
    reason: str
    until: date
    flow: str = ""
    at_most: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    classes: tuple[str, ...] = ()

    def is_for(self, flow: str) -> bool:
        """Whether it may hide causes in a flow."""
        return self.flow in {"", flow}


@dataclass(frozen=True, slots=True)
class Waivers:
    """The waivers of a file by finding id, as they stand on one day (UTC)."""

    today: date
    by_id: Mapping[str, Waiver] = field(default_factory=dict)

    def of(self, finding: str, flow: str) -> Waiver | None:
        """Return the waiver of a finding in a flow, expired or not."""
        waiver = self.by_id.get(finding)
        return waiver if waiver is not None and waiver.is_for(flow) else None

    def in_force(self, waiver: Waiver | None) -> bool:
        """Whether a waiver still hides what it was made for."""
        return waiver is not None and waiver.until >= self.today

    def accepts(self, cluster: Cluster, compared: int) -> bool:
        """Whether a cause is waived that is in some of so many compared exchanges of its flow."""
        waiver = self.of(cluster.id, cluster.flow)
        return waiver is not None and self.in_force(waiver) and not lapse(waiver, cluster, compared)

    def standing(self, waiver: Waiver, exchanges: int, *, lapsed: bool = False) -> Standing:
        """Return how a waiver stands that fits findings in so many exchanges."""
        if not self.in_force(waiver):
            return "expired"
        if lapsed:
            return "lapsed"
        return "in force" if exchanges else "unused"


NO_WAIVERS = Waivers(date.max)


def accepted_share(exchanges: int, compared: int) -> float:
    """Return the share a cause may rise to: the upper end of the interval of what was seen, 95 %.

    1, which bounds nothing, where it is unknown how many exchanges were compared.
    """
    if not 0 < exchanges <= compared:
        return 1.0
    return ceil(share_interval(exchanges, compared)[1] * 10_000) / 10_000


def lapse(waiver: Waiver, cluster: Cluster, compared: int) -> str:
    """Describe why a waiver no longer covers its cause, "" while it does."""
    share = cluster.exchanges / compared if compared else 0.0
    if share > waiver.at_most:
        return f"in {share:.2%} of the exchanges of {cluster.flow}, at most {waiver.at_most:.2%}"
    others = sorted(set(cluster.classes) - set(waiver.classes)) if waiver.classes else []
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return f"values of another class: {others[0]!r}{more}"
    return ""


def merged(one: Waiver, other: Waiver) -> Waiver:
    """Return one waiver for what two accept, up to the earlier day."""
    first = min(one, other, key=lambda waiver: waiver.until)
    return msgspec.structs.replace(
        first,
        flow=one.flow if one.flow == other.flow else "",
        at_most=max(one.at_most, other.at_most),
        classes=tuple(sorted({*one.classes, *other.classes}))
        if one.classes and other.classes
        else (),
    )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    waiver: dict[str, dict[str, Any]] = {}


def read_waivers(path: Path) -> dict[str, Waiver]:
    """Read a file of waivers; raises `DeclarationRefused`."""
    return waivers_of(read_text(path), str(path))


def waivers_of(text: str, file: str) -> dict[str, Waiver]:
    """Read waivers from TOML; raises `DeclarationRefused` naming file and key."""
    named = convert_to_struct(parse_toml(text, file), _File, file).waiver
    made: dict[str, Waiver] = {}
    for name, table in named.items():
        key = f"waiver.{name}"
        waiver = convert_to_struct(table, Waiver, file, key)
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
_OWN_KEYS = re.compile(r"^\s*(owner|reason|until|flow|at_most|classes)\s*=")


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


def with_ids(
    text: str, file: str, carried: Mapping[str, tuple[str, ...]], made: Mapping[str, Waiver]
) -> str:
    """Return the file's text with waivers under other ids; comments stay with the first of them.

    Raises `DeclarationRefused` where it is written in a way this cannot edit.
    """
    due = {name: held for name, held in waivers_of(text, file).items() if name not in carried}
    for name, ids in carried.items():
        head, *others = [one for one in ids if one not in due] or [""]
        if not head:
            text = _without(text, name)
        for one in filter(None, (head, *others)):
            due[one] = made[one]
            text = (
                _replaced(text, name, made[one], one)
                if one == head
                else _added(text, one, made[one])
            )
    first = next(iter(carried), "")
    _check(text, file, first, due)
    return text


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


def _replaced(text: str, finding: str, waiver: Waiver, name: str = "") -> str:
    """Put new lines in the place of the old ones, and a new id; comments in the table stay."""
    lines, start, end = _table(text, finding)
    kept = [line for line in lines[start + 1 : end] if not _OWN_KEYS.match(line)]
    header = [line.replace(finding, name or finding, 1) for line in lines[start : start + 1]]
    return "\n".join([*lines[:start], *header, *_lines(waiver), *kept, *lines[end:]])


def _without(text: str, finding: str) -> str:
    lines, start, end = _table(text, finding)
    return "\n".join([*lines[:start], *lines[end:]])


def _table(text: str, finding: str) -> tuple[list[str], int, int]:
    """Return the lines of a file, and from which to which one a waiver's table goes."""
    lines = text.split("\n")
    header = re.compile(rf"""^\s*\[\s*waiver\s*\.\s*["']?{finding}["']?\s*\]""")
    start = next((k for k, line in enumerate(lines) if header.match(line)), len(lines))
    end = next((k for k in range(start + 1, len(lines)) if _HEADER.match(lines[k])), len(lines))
    return lines, start, end


def _lines(waiver: Waiver) -> list[str]:
    flow = [f"flow = {quoted(waiver.flow)}"] if waiver.flow else []
    owner, reason = quoted(waiver.owner), quoted(waiver.reason)
    share = [f"at_most = {waiver.at_most}"] if waiver.at_most < 1 else []
    named = f"classes = [{', '.join(map(quoted, waiver.classes))}]"
    bounds = [*share, *([named] if waiver.classes else [])]
    return [f"owner = {owner}", f"reason = {reason}", f"until = {waiver.until}", *flow, *bounds]


def quoted(text: str) -> str:
    """Write a TOML string: JSON's escapes, and DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
