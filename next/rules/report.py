"""The performance report of a run: what each node took, and its share."""

from __future__ import annotations

from collections.abc import Mapping


def performance(nodes: Mapping[str, float]) -> str:
    """Return a line a node, with its milliseconds and share, and the total; `nodes` in seconds."""
    total = sum(nodes.values())
    lines = [
        f"  {name}: {seconds * 1000:.0f}ms ({100 * seconds / total if total else 0:.1f}%)"
        for name, seconds in nodes.items()
    ]
    return "\n".join(["performance report:", *lines, f"total: {total * 1000:.0f}ms"])
