"""Tests in which nothing is freed but by the end of its last reference."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the collector of cycles off for a block, after one collection."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
