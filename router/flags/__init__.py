"""Flags: the switches of a flow, from the file or from a team's own flag service."""

from router.flags.flagged import Flagged
from router.flags.source import FixedFlags, FlagSource, Refused, Targeting

__all__ = ["FixedFlags", "FlagSource", "Flagged", "Refused", "Targeting"]
