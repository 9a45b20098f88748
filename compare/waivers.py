"""Waivers: causes that a team accepts, with an owner, a reason, a last day and a highest share."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import tomlkit

from cutover.errors import Unusable

Standing = Literal["", "in_force", "expired", "grown"]
"""How the waiver of a cause stands, "" where there is none; `grown`: above its highest share."""
CAUSE: Final = re.compile(r"[0-9a-f]{8}")
_NO_CAUSE = "the id of a cause has eight hexadecimal digits"
Named = Annotated[str, msgspec.Meta(pattern=r"\S")]


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause that is accepted up to and with the day `until`.

    And in no more than `at_most_percent` of the compared pairs of its flow.
    """

    owner: Named
    reason: Named
    until: date
    at_most_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 100.0

    def standing(self, share: float, today: date) -> Standing:
        """Return how it stands where its cause is in a share of the pairs."""
        if today > self.until:
            return "expired"
        return "grown" if share * 100 > self.at_most_percent else "in_force"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    waiver: dict[str, Waiver] = {}


def read_waivers(path: Path) -> Mapping[str, Waiver]:
    """Return the waivers of a file by cause; none where there is no file; raises `Unusable`."""
    if not path.exists():
        return {}
    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).waiver
    except (OSError, ValueError) as error:  # also TOML's, UTF-8's and msgspec's
        raise Unusable(where=path, reason=str(error)) from error
    if wrong := [one for one in found if not CAUSE.fullmatch(one)]:
        raise Unusable(where=path, reason=f"waiver.{wrong[0]}: {_NO_CAUSE}")
    return found


def waive(path: Path, cause: str, waiver: Waiver, today: date) -> None:
    """Write a waiver into a file, in place of the cause's last one; the rest stays as it is.

    Raises `Unusable` for what no report names, and for a day that is over.
    """
    if not CAUSE.fullmatch(cause):
        raise Unusable(where="CAUSE", reason=f"{cause!r}: {_NO_CAUSE}")
    if waiver.until < today:
        raise Unusable(where="--until", reason=f"{waiver.until} is over")
    read_waivers(path)  # what cannot be read is not written to
    try:
        msgspec.convert(msgspec.to_builtins(waiver), Waiver)
        content = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
        table = content.setdefault("waiver", tomlkit.table(is_super_table=True))
        table[cause] = msgspec.to_builtins(waiver, builtin_types=(date,))
        unfinished = path.with_name(f"{path.name}.tmp")
        unfinished.write_text(tomlkit.dumps(content), "utf-8")
        unfinished.replace(path)
    except (OSError, msgspec.ValidationError) as error:
        raise Unusable(where=path, reason=str(error)) from error
