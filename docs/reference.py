"""`python -m docs.reference`: write what pages say of settings, metrics, redaction, graphs."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_origin

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from graph_impl import GRAPHS
from harness.config import TABLES, Settings
from router.captures.kinds import BUILT_IN, NOT_FOUND, SECRETS
from router.telemetry.metrics import METRICS

PAGES: Final = ("configuration.md", "operations.md", "privacy.md", "architecture.md")
DOCS: Final = Path(__file__).resolve().parent
_BLOCK: Final = re.compile(
    r"(?P<head><!-- (?P<name>\w+): written by .* -->\n)(?s:.*?)(?P<end><!-- end of (?P=name) -->)"
)


def written(page: str) -> str:
    """Return a page with each of its blocks as the code has it."""
    return _BLOCK.sub(lambda one: f"{one['head']}\n{BLOCKS[one['name']]()}\n{one['end']}", page)


def _settings() -> str:
    top = {name: one for name, one in Settings.model_fields.items() if one.description}
    parts = ["## Above all tables", inspect.getdoc(Settings), _keys(top)]
    for name, table in TABLES.items():
        named = ".NAME" if get_origin(Settings.model_fields[name].annotation) is dict else ""
        parts += [f"## `[{name}{named}]`", inspect.getdoc(table), _keys(table.model_fields)]
    return "\n\n".join(one.strip() for one in parts if one) + "\n"


def _keys(fields: Mapping[str, FieldInfo]) -> str:
    rows = (
        (f"`{name}`", _default(one), " ".join((one.description or "").split()))
        for name, one in fields.items()
    )
    return _table("| key | default | |", rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    known = "none" if value is None else f"`{json.dumps(value)}`"
    secret = any(isinstance(one, AfterValidator) for one in field.metadata)
    return f"{known} or `env:NAME`" if secret else known


def _table(head: str, rows: Iterable[Sequence[str]]) -> str:
    lines = [head, re.sub(r"[^|]+", "---", head)]
    return "\n".join([*lines, *(f"| {' | '.join(one)} |" for one in rows), ""])


def _metrics() -> str:
    rows = (
        (f"`{one.name}`", ", ".join(f"`{at}`" for at in one.labels), one.about) for one in METRICS
    )
    return _table("| metric | labels | |", rows)


def _graphs() -> Iterator[str]:
    for name, graph in GRAPHS.items():
        yield f"### {name}\n\n```mermaid\n{graph.get_graph().draw_mermaid().strip()}\n```\n"


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "settings": _settings,
    "metrics": _metrics,
    "kinds": lambda: _table("| kind | values |", ((f"`{one.name}`", one.what) for one in BUILT_IN)),
    "secrets": lambda: "".join(f"- {one}\n" for one in SECRETS),
    "stays": lambda: _table(
        "| stays | for example |", ((what, f"`{example}`") for what, example in NOT_FOUND.items())
    ),
    "graphs": lambda: "\n".join(_graphs()),
}
"""Parts of pages by their names, as they stand between comments there."""

if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / name
        path.write_text(written(path.read_text("utf-8")), "utf-8")
