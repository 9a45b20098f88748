"""The JSON schema of a tool's arguments, and whether arguments fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Mapping


class SchemaUnusable(CutoverError):
    """A schema cannot be offered to a model, or nothing can be checked by it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"its schema is {why}")


class Schema:
    """A checked schema; one that names no dialect is of 2020-12, as MCP has it.

    Raises `SchemaUnusable`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if schema.get("type") != "object":
            raise SchemaUnusable(why="not of an object")
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise SchemaUnusable(why="no JSON schema") from error
        # A registry of its own: references lead nowhere outside, and nothing is ever fetched.
        self._validator = kind(schema, registry=Registry())

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Whether arguments are what the schema asks for."""
        return bool(self._validator.is_valid(arguments))
