"""`python -m harness.reference`: write docs/configuration.md anew from the schema."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from harness.config import TABLES, Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
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


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
