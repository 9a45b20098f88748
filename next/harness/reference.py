"""`python -m harness.reference`: write the pages of configuration and metrics from the code."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from harness.config import TABLES, Settings
from router.telemetry.metrics import METRICS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
OPERATIONS = PAGE.parent / "operations.md"
INTRODUCTION = """# The configuration

One TOML file, named with `--config`. Without one all five flows are served, by legacy. A key that
does not exist is refused with the nearest one that does. Text marked "or `env:NAME`" may stand in
the environment. A change of `[flows.*]` is in force within three seconds, all others after a
restart; a bad edit keeps the last good one in force and says so in the log.
"""


def reference() -> str:
    """Return the page: each table with its keys, their defaults, and what they mean."""
    top = {name: one for name, one in Settings.model_fields.items() if one.description}
    parts = [INTRODUCTION, _table("", inspect.getdoc(Settings) or "", top)]
    parts += [
        _table(heading, inspect.getdoc(table) or "", table.model_fields)
        for heading, table in TABLES.items()
    ]
    return "\n".join(parts)


def _table(heading: str, about: str, fields: dict[str, FieldInfo]) -> str:
    rows = [f"| `{name}` | {_default(one)} | {one.description} |" for name, one in fields.items()]
    title = f"## `[{heading}]`" if heading else "## Above all tables"
    return "\n".join([title, "", about, "", "| key | default | |", "|---|---|---|", *rows, ""])


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


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
    OPERATIONS.write_text(with_metrics(OPERATIONS.read_text("utf-8")), "utf-8")
