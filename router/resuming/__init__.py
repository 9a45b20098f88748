"""Resuming by text: another stack's stream goes on where the client's broke off."""

from router.resuming.prefix import Prefix, PrefixDiffers
from router.resuming.resumption import resumption
from router.resuming.wording import Wording

__all__ = ["Prefix", "PrefixDiffers", "Wording", "resumption"]
