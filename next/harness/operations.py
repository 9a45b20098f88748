"""What performs the flows' further operations, over the stores alone."""

from __future__ import annotations

from collections.abc import Mapping

from router.app import Perform

OPERATIONS: Mapping[str, Perform] = {}
"""Operations by the name that the flow gives them."""
