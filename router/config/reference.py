"""The reference in docs/configuration.md, generated from the schema: run with `--check` by a test.

python -m router.config.reference [--check] [docs/configuration.md]
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from router.config.schema import FlowSettings, Section, Settings

PAGE = Path("docs/configuration.md")
BEGIN = "<!-- generated from router/config/schema.py: python -m router.config.reference -->"
END = "<!-- end of what is generated -->"

_NAMES = {"flows": "chat", "providers": "openai", "models": '"gpt-4.1"', "mcp": "files"}
"""What a table is called, by the key of the tables it is one of."""
_SKIPPED = {"declared", "version"}
_COLUMN = 34
_WIDTH = 120


def reference() -> str:
    """Return every key of the file as TOML, with its default and its meaning."""
    return "\n".join((*_keys(Settings), *_tables(Settings))).strip()


def _tables(kind: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if isinstance(field.default, Section):
            yield from _table(f"{above}{name}", type(field.default))
        elif name in _NAMES:
            yield from _table(f"{above}{name}.{_NAMES[name]}", get_args(field.annotation)[1])


def _table(name: str, kind: type[BaseModel]) -> Iterator[str]:
    if keys := [*_keys(kind)]:
        about = (kind.__doc__ or "").partition("\n")[0].removeprefix("`[stacks.<name>]`: ")
        yield ""
        yield from _commented(f"[{name}]", about.rstrip(".").replace("`", ""))
        yield from keys
    yield from _tables(kind, f"{name}.")


def _keys(kind: type[BaseModel]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if name in {*_SKIPPED, *_NAMES} or isinstance(field.default, Section):
            continue
        if kind is FlowSettings and name in {"options", "gate"}:
            continue
        default = "message_id" if (kind, name) == (FlowSettings, "route_key") else _example(field)
        yield from _commented(f"{name} = {toml_value(default)}", field.description or "")


def _example(field: FieldInfo) -> object:
    if field.examples:
        return field.examples[0]
    return None if field.default is PydanticUndefined else field.default


def _commented(text: str, comment: str) -> Iterator[str]:
    """Yield a line with its comment, wrapped below it where it is long."""
    if not comment:
        yield text
        return
    indent = max(_COLUMN, len(text.rpartition("\n")[2]) + 2)
    text, last = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    first, *rest = textwrap.wrap(comment, max(_WIDTH - indent, 60), break_on_hyphens=False)
    yield f"{text}{last:<{indent}}# {first}"
    for line in rest:
        yield f"{'':<{indent}}#   {line}"


def toml_value(value: object) -> str:
    """Return a default as TOML writes it."""
    match value:
        case bool():
            return str(value).lower()
        case Decimal():
            return str(float(value))
        case frozenset() | tuple() | list():
            values = [toml_value(one) for one in value]
            short = f"[{', '.join(values)}]"
            lines = "".join(f"    {one},\n" for one in values)
            return short if len(short) < _WIDTH - _COLUMN else f"[\n{lines}]"
        case Mapping():
            return "{}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def generated(page: str) -> str:
    """Return the page with its generated part as the schema is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```toml\n{reference()}\n```\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` return 1 where it is not up to date."""
    check = "--check" in arguments
    path = next((Path(one) for one in arguments if one != "--check"), PAGE)
    page = path.read_text("utf-8")
    if check:
        return int(generated(page) != page)
    path.write_text(generated(page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
