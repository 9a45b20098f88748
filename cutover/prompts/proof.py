"""Proof that Jinja2 and PromptTemplate write the same bytes: on edge cases and drawn values.

Imported where a proof is ordered: Hypothesis is an extra, and the engine takes a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from statistics import median
from typing import Any, TypeAlias

import msgspec
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from jinja2 import Environment, meta, nodes

from cutover.prompts.judgement import DifferingValues, PromptProof, ProofCase, nested
from graph_impl.templates import chat_of, jinja2_prompt_of, prompt_of

Values: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[[Mapping[str, Any]], list[str]]

DRAWN = 40
"""Drawn values per prompt, beside the edge cases."""
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
"""Values that prompts have failed on."""
_SHOWN = 200
_FAILS = "\ue002fails: "
_TIMED_CALLS = 15


def proved(environment: Environment, case: ProofCase) -> PromptProof:
    """Render a prompt both ways until a difference is found or all values are drawn."""
    try:
        templates = [environment.get_template(name) for name in case.templates]
        graph = _graph_rendering(case)
    except Exception as error:  # noqa: BLE001 (either side may refuse its template)
        return PromptProof(0, failed=f"{type(error).__name__}: {error}")
    return search(
        case,
        lambda values: [template.render(nested(case.paths, values)) for template in templates],
        graph,
    )


def search(case: ProofCase, legacy: Render, graph: Render, count: int = DRAWN) -> PromptProof:
    """Search for values on which two renderings differ. A rendering that fails equals nothing."""
    tried = 0

    def differs(values: Mapping[str, Any]) -> bool:
        nonlocal tried
        tried += 1
        old, new = _rendered(legacy, values), _rendered(graph, values)
        return old != new or any(text.startswith(_FAILS) for text in old)

    names = tuple(case.paths)
    found = next((values for values in _edges(names) if differs(values)), None)
    if found is not None:
        found = _shrunk(found, differs)
    elif names:
        found = _drawn(names, differs, count)
    return PromptProof(tried, None if found is None else _shown(case, found, legacy, graph))


def jinja2_format_cost(environment: Environment, name: str) -> float | None:
    """Return the microseconds a call of `PromptTemplate(template_format="jinja2")` takes.

    None where it is not equal on every value for which the team's own environment renders.
    """
    if environment.loader is None:
        return None
    source = environment.loader.get_source(environment, name)[0]
    tree = environment.parse(source)
    names = sorted(meta.find_undeclared_variables(tree))
    fields = sorted({node.attr for node in tree.find_all(nodes.Getattr)})
    try:
        legacy, graph = environment.get_template(name), jinja2_prompt_of(source)
    except Exception:  # noqa: BLE001 (either side may refuse the template)
        return None
    equal: list[Values] = []
    for values in _structured(names, fields):
        old = _rendered(lambda given: [legacy.render(given)], values)
        if old[0].startswith(_FAILS):
            continue
        if old != _rendered(lambda given: [graph(given)], values):
            return None
        equal.append(values)
    if not equal:
        return None
    times = []
    for turn in range(_TIMED_CALLS):
        began = time.perf_counter()
        graph(equal[turn % len(equal)])
        times.append(time.perf_counter() - began)
    return round(median(times) * 1_000_000)


def _structured(names: Sequence[str], fields: Sequence[str]) -> Iterator[Values]:
    """Yield edge cases as values, lists and records with the attributes that a template reads."""
    for turn in range(len(EDGES)):
        edges = [EDGES[(turn + step) % len(EDGES)] for step in range(len(names) + len(fields) + 1)]
        record = dict(zip(fields, edges, strict=False))
        for shape in (edges[0], edges[:2], [record, record], record):
            mixed = dict(zip(names, edges, strict=False))
            if names:
                mixed[names[turn % len(names)]] = shape
            yield mixed
            yield dict.fromkeys(names, shape)


def _graph_rendering(case: ProofCase) -> Render:
    if not case.chat:
        render = prompt_of(case.text)
        return lambda values: [render(values)]
    chat = chat_of(msgspec.json.decode(case.text, type=list[dict[str, str]]))
    empty: dict[str, object] = {name: [] for name in case.placeholders}
    return lambda values: chat({**values, **empty})


def _rendered(render: Render, values: Mapping[str, Any]) -> list[str]:
    try:
        return render(values)
    except Exception as error:  # noqa: BLE001 (both sides may raise anything)
        return [f"{_FAILS}{type(error).__name__}: {error}"]


def _edges(names: Sequence[str]) -> Iterator[Values]:
    """Yield values in which each variable takes each edge case, beside different others."""
    for k in range(len(EDGES) if names else 1):
        yield {name: EDGES[(k + i) % len(EDGES)] for i, name in enumerate(names)}


def _drawn(names: Sequence[str], differs: Callable[[Values], bool], count: int) -> Values | None:
    """Draw up to `count` values for the names; return the simplest that differ, or None."""
    value = st.one_of(
        st.sampled_from(EDGES), st.text(max_size=12), st.integers(), st.floats(), st.booleans()
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


def _shrunk(values: Values, differs: Callable[[Values], bool]) -> Values:
    """Simplify values as long as they still differ."""
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


def _shown(case: ProofCase, values: Values, legacy: Render, graph: Render) -> DifferingValues:
    old, new = _rendered(legacy, values), _rendered(graph, values)
    at = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    return DifferingValues(
        case.templates[at] if at < len(case.templates) else case.name,
        {name: repr(value) for name, value in values.items()},
        *(_excerpt(side, at, old, new) for side in (old, new)),
    )


def _excerpt(side: Sequence[str], at: int, old: Sequence[str], new: Sequence[str]) -> str:
    """Return one side's message around the first difference."""
    if at >= len(side):
        return "nothing"
    pairs = zip(old[at], new[at], strict=False) if at < min(len(old), len(new)) else ()
    first = next((k for k, (a, b) in enumerate(pairs) if a != b), 0)
    start = max(0, first - _SHOWN // 4)
    shown = side[at][start : start + _SHOWN]
    return shown.removeprefix("\ue002") if shown.startswith(_FAILS) else repr(shown)
