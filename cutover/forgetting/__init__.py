"""Forgetting somebody: exchanges out of captures, turns, memories and pauses out of the stores."""

from cutover.forgetting.captures import ForgottenCaptures, forget_captures
from cutover.forgetting.sought import Sought, declared_fields
from cutover.forgetting.stores import ForgottenRows, forget_rows

__all__ = [
    "ForgottenCaptures",
    "ForgottenRows",
    "Sought",
    "declared_fields",
    "forget_captures",
    "forget_rows",
]
