"""Declarations: TOML, read strictly into frozen values."""

from __future__ import annotations

import re
import stat
import tomllib
from difflib import get_close_matches
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from contract.errors import CutoverError

MOST_BYTES = 1 << 20
"""No declaration that a person writes is longer; a device has no end."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

S = TypeVar("S", bound=msgspec.Struct)

_AT = re.compile(r"^(?P<why>.*?)(?: - at `(?:key|value)?(?: in )?\$(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(?:\d+|\.\.\.)\]")


class DeclarationRefused(CutoverError):
    """A declaration cannot be used; names file, key and what is wrong."""

    def __init__(self, file: str, key: str, why: str) -> None:
        super().__init__(f"{file}: {key}: {why}" if key else f"{file}: {why}")
        self.file = file
        self.key = key
        self.why = why


def not_a_file(mode: int) -> str:
    """Name what a `st_mode` stands for if that is neither file nor folder, "" for those.

    Opening a pipe waits for its writer, and a device may have no end.
    """
    kind = stat.S_IFMT(mode)
    if kind in {stat.S_IFREG, stat.S_IFDIR}:
        return ""
    return f"{_KINDS.get(kind, 'something else')}, not a file"


def decode_text(data: bytes, file: str) -> str:
    """Return the text of a declaration, without a byte order mark; raises `DeclarationRefused`."""
    if len(data) > MOST_BYTES:
        raise DeclarationRefused(file, "", f"longer than {MOST_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DeclarationRefused(file, "", f"not UTF-8 at byte {error.start}") from error


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML; raises `DeclarationRefused`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeclarationRefused(file, "", f"not TOML: {error}") from error


def convert_to_struct(table: object, kind: type[S], file: str, prefix: str = "") -> S:
    """Turn a table into a struct; an unknown key is refused with the nearest known one."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _refusal(file, prefix, str(error), kind) from error


def _refusal(file: str, prefix: str, text: str, kind: type[msgspec.Struct]) -> DeclarationRefused:
    found = _AT.match(text)
    why, path = (found["why"], found["path"] or "") if found else (text, "")
    unknown = _UNKNOWN.match(why)
    if unknown is None:
        return DeclarationRefused(file, f"{prefix}{path}".removeprefix("."), why)
    name = unknown["name"]
    key = f"{prefix}{path}.{name}".removeprefix(".")
    return DeclarationRefused(file, key, f"unknown key; {_hint(name, _struct_at(path, kind))}")


def _hint(name: str, kind: type[msgspec.Struct]) -> str:
    known = kind.__struct_encode_fields__
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"


def _struct_at(path: str, kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Follow a path of keys to the struct it leads to; lists and tables of structs included."""
    for name in _STEP.findall(path):
        if name:
            fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
            kind = _struct_in(get_type_hints(kind).get(fields.get(name, "")), kind)
    return kind


def _struct_in(hint: object, default: type[msgspec.Struct]) -> type[msgspec.Struct]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    inner = [_struct_in(part, default) for part in get_args(hint)]
    return next((part for part in inner if part is not default), default)
