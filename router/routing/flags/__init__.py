"""Flags: the switches of a flow, from the file or from a team's own flag service."""

from router.routing.flags.flagged import Flagged
from router.routing.flags.source import FixedFlags, FlagSource, Refused, Targeting

__all__ = ["FixedFlags", "FlagSource", "Flagged", "Refused", "Targeting"]
