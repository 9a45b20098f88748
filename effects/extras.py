"""Optional dependencies: what is said when one is not installed."""

from __future__ import annotations

from contract.errors import CutoverError


class MissingExtra(CutoverError, ImportError):
    """An adapter was asked for whose library comes with an extra that is not installed."""

    def __init__(self, adapter: str, extra: str) -> None:
        super().__init__(f"{adapter!r} needs the extra {extra!r}: pip install 'cutover[{extra}]'")
        self.extra = extra
