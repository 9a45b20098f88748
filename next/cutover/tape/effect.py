"""Stub."""
from __future__ import annotations
from collections.abc import Callable
from typing import Any, TypeVar
F = TypeVar("F", bound=Callable[..., Any])
def effect(name: str, *, writes: bool = False, seconds: float = 30.0, raises: tuple[type[Exception], ...] = (), ignore: tuple[str, ...] = ("self", "cls")) -> Callable[[F], F]:
    """Stub."""
    return lambda function: function
