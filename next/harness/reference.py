"""`python -m harness.reference`: write what pages say of settings, metrics, redaction, graphs."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, get_origin

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from graph_impl import GRAPHS
from harness.config import TABLES, Settings
from router.captures.kinds import BUILT_IN, NOT_FOUND, SECRETS
from router.telemetry.metrics import METRICS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
OPERATIONS, PRIVACY = PAGE.parent / "operations.md", PAGE.parent / "privacy.md"
ARCHITECTURE = PAGE.parent / "architecture.md"
INTRODUCTION = """# The configuration

Write one TOML file, and name it with `--config`:

```toml
[flows.chat]
enable_langgraph = true
langgraph_percent = 5.0
```

Without a file all five built-in flows are served, by legacy; with one, those that it names. A key
that does not exist is refused with the nearest one that does. Text marked "or `env:NAME`" may stand
in the environment. A change of `[flows.*]` is in force within three seconds, all others after a
restart. After a bad edit the last good one stays in force, and the log says so.
"""


def reference() -> str:
    """Return the page: each table with its keys, their defaults, and what they mean."""
    top = {name: one for name, one in Settings.model_fields.items() if one.description}
    parts = [INTRODUCTION, _table("", inspect.getdoc(Settings) or "", top)]
    parts += [
        _table(name + ".NAME" * _named(name), inspect.getdoc(table) or "", table.model_fields)
        for name, table in TABLES.items()
    ]
    return "\n".join(parts)


def _named(table: str) -> bool:
    """Return whether there are several tables of a kind, by name."""
    return get_origin(Settings.model_fields[table].annotation) is dict


def _table(heading: str, about: str, fields: dict[str, FieldInfo]) -> str:
    rows = [f"| `{name}` | {_default(one)} | {_line(one)} |" for name, one in fields.items()]
    title = f"## `[{heading}]`" if heading else "## Above all tables"
    return "\n".join([title, "", about, "", "| key | default | |", "|---|---|---|", *rows, ""])


def _line(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    known = "none" if value is None else f"`{json.dumps(value)}`"
    secret = any(isinstance(one, AfterValidator) for one in field.metadata)
    return f"{known} or `env:NAME`" if secret else known


def with_metrics(page: str) -> str:
    """Return the page of operations with the table of metrics as the code has it."""
    before, begins, rest = page.partition("<!-- metrics: ")
    remark, _, rest = rest.partition("\n")
    _, ends, after = rest.partition("<!-- end of metrics -->")
    rows = [
        f"| `{one.name}` | {', '.join(f'`{label}`' for label in one.labels)} | {one.about} |"
        for one in METRICS
    ]
    table = "\n".join(["| metric | labels | |", "|---|---|---|", *rows])
    return f"{before}{begins}{remark}\n\n{table}\n\n{ends}{after}"


def with_kinds(page: str) -> str:
    """Return the page of privacy with the lists of what is found, and what is not."""
    before, remark, _ = page.partition("<!-- kinds: written by `python -m harness.reference` -->\n")
    lists = [
        "\n## What is found\n",
        "| kind | values |\n|---|---|",
        *(f"| `{kind.name}` | {kind.what} |" for kind in BUILT_IN),
        "\nSecrets of these shapes:\n",
        *(f"- {one}" for one in SECRETS),
        "\n## What is not found\n",
        "| stays | for example |\n|---|---|",
        *(f"| {what} | `{example}` |" for what, example in NOT_FOUND.items()),
        "\nA value that is cut over two different fields stays as well. Add own patterns and paths",
        "for what your users write.\n",
    ]
    return before + remark + "\n".join(lists)


def with_diagrams(page: str) -> str:
    """Return the page of the architecture, which ends with each graph as Mermaid."""
    heading = "## The graphs"
    before, _, _ = page.partition(heading)
    drawn = [
        f"### {name}\n\n```mermaid\n{graph.get_graph().draw_mermaid().strip()}\n```\n"
        for name, graph in GRAPHS.items()
    ]
    return before + "\n".join([f"{heading}\n", *drawn])


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
    OPERATIONS.write_text(with_metrics(OPERATIONS.read_text("utf-8")), "utf-8")
    PRIVACY.write_text(with_kinds(PRIVACY.read_text("utf-8")), "utf-8")
    ARCHITECTURE.write_text(with_diagrams(ARCHITECTURE.read_text("utf-8")), "utf-8")
