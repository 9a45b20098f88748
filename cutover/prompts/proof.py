"""Proof that both ways write the same: on edges, on drawn values, or a counterexample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cutover.prompts.case import DRAWN, Case, Counterexample, Proof
from cutover.prompts.drawing import drawn, edges, shrunk
from graph_impl.templates import chat_of, prompt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cutover.prompts.environment import Prompting

    Render = Callable[[Mapping[str, Any]], list[str]]

SHOWN = 200
_FAILS = "\ue002fails: "


def proved(made: Prompting, case: Case, count: int = DRAWN) -> Proof:
    """Render a prompt both ways until a difference is found, or nothing more is drawn."""
    try:
        legacy, graph = jinja_way(made, case), graph_way(case)
    except Exception as error:  # noqa: BLE001 (whatever either says of its template)
        return Proof(0, failed=f"{type(error).__name__}: {error}")
    return search(case, legacy, graph, count)


def search(case: Case, legacy: Render, graph: Render, count: int = DRAWN) -> Proof:
    """Look for values that make a difference between two ways."""
    tried = 0

    def differs(values: Mapping[str, Any]) -> bool:
        nonlocal tried
        tried += 1
        old, new = _written(legacy, values), _written(graph, values)
        return old != new or any(text.startswith(_FAILS) for text in old)

    found = next((values for values in edges(case.variables) if differs(values)), None)
    found = drawn(case.variables, differs, count) if found is None else shrunk(found, differs)
    return Proof(tried, None if found is None else _shown(case, found, legacy, graph))


def jinja_way(made: Prompting, case: Case) -> Render:
    """Give what the old templates write, message by message; raises what Jinja2 does."""
    templates = [made.environment.get_template(name) for name in case.templates]
    return lambda values: [template.render(values) for template in templates]


def graph_way(case: Case) -> Render:
    """Give what the new ones write; raises what PromptTemplate does."""
    if not case.chat:
        render = prompt_of(case.text)
        return lambda values: [render(values)]
    chat = chat_of(msgspec.json.decode(case.text, type=list[dict[str, str]]))
    empty: dict[str, object] = {name: [] for name in case.placeholders}
    return lambda values: chat({**values, **empty})


def _written(way: Render, values: Mapping[str, Any]) -> list[str]:
    """Render; an exception counts as something written, but never as equal."""
    try:
        return way(values)
    except Exception as error:  # noqa: BLE001 (both ways may raise whatever they like)
        return [f"{_FAILS}{type(error).__name__}: {error}"]


def _shown(case: Case, values: Mapping[str, Any], legacy: Render, graph: Render) -> Counterexample:
    old, new = _written(legacy, values), _written(graph, values)
    at = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    return Counterexample(
        case.templates[at] if at < len(case.templates) else case.name,
        {name: repr(value) for name, value in values.items()},
        *(_around(side, at, old, new) for side in (old, new)),
    )


def _around(side: Sequence[str], at: int, old: Sequence[str], new: Sequence[str]) -> str:
    """Write one side's message around the first difference."""
    if at >= len(side):
        return "nothing"
    pairs = zip(old[at], new[at], strict=False) if at < min(len(old), len(new)) else ()
    first = next((k for k, (a, b) in enumerate(pairs) if a != b), 0)
    start = max(0, first - SHOWN // 4)
    shown = side[at][start : start + SHOWN]
    return shown.removeprefix("\ue002") if shown.startswith(_FAILS) else repr(shown)
