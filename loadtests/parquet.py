"""Rows as Parquet, one column a field, with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from contract.errors import MissingExtra
from loadtests.rows import LoadRow


def parquet_library() -> Any:
    """Return pyarrow, its Parquet part included; raises `MissingExtra`."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as missing:
        raise MissingExtra(adapter="--parquet", extra="parquet") from missing


def write_parquet(rows: Sequence[LoadRow], path: Path) -> None:
    """Write rows to a file; `gaps` is a list of numbers, `labels` a map, as in a JSON row."""
    arrow = parquet_library()
    optional = ("headers", "first_event", "first_token", "first_text", "last_content", "terminal")
    types = {int: arrow.int64(), str: arrow.string()}
    special = {
        **dict.fromkeys((*optional, "leaves"), arrow.int64()),
        "ending": arrow.string(),
        "gaps": arrow.list_(arrow.int64()),
        "labels": arrow.map_(arrow.string(), arrow.string()),
    }
    fields = msgspec.structs.fields(LoadRow)
    schema = [(each.name, special.get(each.name) or types[each.type]) for each in fields]
    table = arrow.Table.from_pylist([_cells(row) for row in rows], schema=arrow.schema(schema))
    arrow.parquet.write_table(table, path)


def _cells(row: LoadRow) -> dict[str, object]:
    return {**msgspec.structs.asdict(row), "labels": list(row.labels.items())}
