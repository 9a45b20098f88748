"""What a section of the configuration is, and what bounds its values have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
Most = Annotated[int, Meta(ge=0)]
"""A limit; 0 is none."""
Price = Annotated[float, Meta(ge=0)]

MIB = 1_048_576


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file; a misspelt key is refused."""
