"""What may be said of all that was read: equal is never said of less than was compared."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

Label = Literal["equal", "different", "incomplete", "nothing", "unreadable"]
"""`incomplete`: what was compared is equal, but more is lost than `LOST_AT_MOST`; `nothing`: no
pair; `unreadable`: most of what there is cannot be read."""
LOST_AT_MOST: Final = 0.01
"""The share of pairs that may be missing or damaged where the rest is called equal."""
CONFIDENCE: Final = 0.95


class Verdict(msgspec.Struct, frozen=True):
    """A label with its reasons, each one sentence."""

    label: Label
    reasons: tuple[str, ...]

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return {"equal": 0, "different": 1, "nothing": 3}.get(self.label, 4)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of captures, and by kind what was not.

    `torn` and `gone` are files, `foreign` lines of no record, `duplicate` lines read before.
    """

    files: int
    lines: int
    damage: dict[str, int]


def at_most(pairs: int) -> float:
    """Return the share that may differ, with 95 % confidence, where none of `pairs` does.

    The rule of three, exactly: Clopper and Pearson 1934; pairs are taken for independent.
    """
    return 1.0 if pairs <= 0 else 1.0 - (1.0 - CONFIDENCE) ** (1.0 / pairs)


def decide(
    read: Read,
    compared: int,
    different: int,
    accepted: int,
    not_compared: Mapping[str, int],
    notes: Iterable[str] = (),
) -> Verdict:
    """Return the verdict on so many pairs; what was not looked at is among its reasons.

    `accepted` are pairs that differ in what is waived alone, `not_compared` exchanges by reason,
    `notes` sentences on waivers that no longer hold, and on what was compared in part.
    """
    damage, skipped = Counter(read.damage), Counter(not_compared)
    files, lines, twice = damage["torn"] + damage["gone"], damage["foreign"], damage["duplicate"]
    lost = skipped["lines_missing"] + skipped["damaged"] + lines
    due = compared + lost
    why = ", ".join(f"{of:,} {one.replace('_', ' ')}" for one, of in skipped.most_common())
    said = {
        f"{different:,} of {compared:,} pairs compared differ": different,
        f"none of {compared:,} pairs compared differs": compared and not different,
        f"{accepted:,} of them differ in what is waived alone": accepted,
        f"{skipped.total():,} exchanges were not compared: {why}": skipped.total(),
        "there is no exchange": not compared + skipped.total(),
        **dict.fromkeys(notes, 1),
        f"{files:,} of {read.files:,} files are torn or gone, and what they held is lost": files,
        f"{lost:,} of {due:,} lines or pairs are missing, or cannot be read": lost,
        f"{twice:,} lines are of runs that stand there again: the newest count": twice,
    }
    reasons = tuple(sentence for sentence, holds in said.items() if holds)
    if files * 2 > read.files or lines > read.lines or skipped["damaged"] * 2 > due:
        return Verdict("unreadable", reasons)
    if not compared:
        return Verdict("nothing", reasons)
    if different > accepted:
        return Verdict("different", reasons)
    if files or lost > LOST_AT_MOST * due:
        return Verdict("incomplete", reasons)
    return Verdict("equal", reasons)
