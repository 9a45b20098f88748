"""Values drawn and shrunk by hypothesis, the same ones each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample


def drawn_difference(
    names: Sequence[str],
    edges: Sequence[object],
    differs: Callable[[dict[str, Any]], bool],
    count: int,
) -> dict[str, Any] | None:
    """Draw up to `count` values for the names; return the simplest that differ, or None."""
    value = st.one_of(
        st.sampled_from(edges), st.text(max_size=12), st.integers(), st.floats(), st.booleans()
    )
    drawing = settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        found = find(
            st.fixed_dictionaries(dict.fromkeys(names, value)),
            differs,
            settings=drawing,
            random=Random(0),  # noqa: S311 (drawn cases, no secrets)
        )
    except NoSuchExample:
        return None
    return dict(found)
