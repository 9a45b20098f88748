"""What was found of one part of a set-up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Which part, whether it is as it should be, and what there is to say of it."""

    part: str
    good: bool
    said: str
