"""References: what a request brought stands in a call by name and digest, not once more."""

from __future__ import annotations

_SCHEME = "request:"
_DIGEST = "#sha256="


def reference(field: str, digest: str) -> str:
    """Name what stands in a field of the request; its SHA-256 (hex) tells it from any other."""
    return f"{_SCHEME}{field}{_DIGEST}{digest}"


def field_of(url: str) -> str | None:
    """Give the field of the request a reference names; None where it is no reference."""
    if not url.startswith(_SCHEME):
        return None
    field, found, _ = url.removeprefix(_SCHEME).partition(_DIGEST)
    return field if found else None
