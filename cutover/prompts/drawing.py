"""Values to render prompts with: the ones that break prompts, and whatever hypothesis draws."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Values = dict[str, Any]

EDGES: tuple[object, ...] = (
    "",
    None,
    "{",
    "}",
    "{}",
    "{0}",
    "{name}",
    "{{7*7}}",
    "{{ 7*7 }}{% raw %}{# #}",
    "%s %(a)s $x \\n",
    "\n",
    "a\r\nb\rc\n",
    " \t ",
    "赤尾 🎈 é é",
    "\ufeff\u2028\u200b",
    "<&>\"'",
    "x" * 10_000,
    0,
    -1,
    10**20,
    0.1,
    1e100,
    float("nan"),
    float("-inf"),
    True,
    False,
)
"""Values that templates have gone wrong on."""

_VALUES = st.one_of(
    st.sampled_from(EDGES),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.booleans(),
)


def edges(names: Sequence[str]) -> Iterator[Values]:
    """Yield values in which each variable takes each edge, next to others."""
    for k in range(len(EDGES) if names else 1):
        yield {name: EDGES[(k + i) % len(EDGES)] for i, name in enumerate(names)}


def drawn(names: Sequence[str], differs: Callable[[Values], bool], count: int) -> Values | None:
    """Draw values until some make a difference, and shrink those; the same ones each time."""
    if not names:
        return None
    asked = settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    values = st.fixed_dictionaries(dict.fromkeys(names, _VALUES))
    try:
        return dict(find(values, differs, settings=asked, random=Random(0)))  # noqa: S311 (drawn cases, no secrets)
    except NoSuchExample:
        return None


def shrunk(values: Values, differs: Callable[[Values], bool]) -> Values:
    """Make values simpler for as long as they still make a difference."""
    for name in values:
        for simpler in ("", 0, None, *_halves(values[name])):
            changed = values | {name: simpler}
            if differs(changed):
                values = changed
                break
    return values


def _halves(value: object) -> Iterator[str]:
    """Yield ever longer beginnings and endings of a text."""
    if isinstance(value, str):
        for size in range(1, min(len(value), 40)):
            yield value[:size]
            yield value[-size:]
