"""Forgetting somebody: exchanges out of captures, rows and threads out of the stores."""

from cutover.erasure.captures import ForgottenCaptures, forget_captures
from cutover.erasure.stores import ForgottenRows, forget_rows
from cutover.erasure.subject import SubjectMatcher, declared_fields
from cutover.erasure.threads import ForgottenThreads, forget_threads

__all__ = [
    "ForgottenCaptures",
    "ForgottenRows",
    "ForgottenThreads",
    "SubjectMatcher",
    "declared_fields",
    "forget_captures",
    "forget_rows",
    "forget_threads",
]
