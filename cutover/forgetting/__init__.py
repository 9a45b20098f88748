"""Forgetting somebody: exchanges out of captures, rows and threads out of the stores."""

from cutover.forgetting.captures import ForgottenCaptures, forget_captures
from cutover.forgetting.sought import Sought, declared_fields
from cutover.forgetting.stores import ForgottenRows, forget_rows
from cutover.forgetting.threads import ForgottenThreads, forget_threads

__all__ = [
    "ForgottenCaptures",
    "ForgottenRows",
    "ForgottenThreads",
    "Sought",
    "declared_fields",
    "forget_captures",
    "forget_rows",
    "forget_threads",
]
