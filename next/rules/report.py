"""The performance report of a run: what each node took, and its share."""

from __future__ import annotations

from collections.abc import Mapping


def performance(nodes: Mapping[str, float]) -> list[str]:
    """Return one line a node, in seconds given by name, and the total; times in milliseconds."""
    total = sum(nodes.values())
    lines = [
        f"{name}: {seconds * 1000:.1f}ms ({100 * seconds / total if total else 0:.1f}%)"
        for name, seconds in nodes.items()
    ]
    return [*lines, f"total: {total * 1000:.1f}ms"]
