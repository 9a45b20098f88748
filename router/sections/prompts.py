"""How prompts that are to be converted are read."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from router.sections.section import Section


class Prompts(Section, frozen=True):
    """`[prompts]`: the Jinja2 environment of prompts that are to be converted (docs/prompts.md).

    The router has no use for it. What is named `package.module:name` is imported by
    `cutover prompts`; the settings from `block_start_string` on are those of `jinja2.Environment`.
    """

    environment: str = ""
    files: tuple[str, ...] = ("**/*.j2", "**/*.jinja", "**/*.jinja2")
    partials: tuple[str, ...] = ("**/_*",)
    search: tuple[str, ...] = ()
    encoding: str = "utf-8"
    suffix: str = ".md"
    block_start_string: str = "{%"
    block_end_string: str = "%}"
    variable_start_string: str = "{{"
    variable_end_string: str = "}}"
    comment_start_string: str = "{#"
    comment_end_string: str = "#}"
    line_statement_prefix: str = ""
    line_comment_prefix: str = ""
    trim_blocks: bool = False
    lstrip_blocks: bool = False
    newline_sequence: Literal["\n", "\r\n", "\r"] = "\n"
    keep_trailing_newline: bool = False
    undefined: str = "default"
    autoescape: bool | str | tuple[str, ...] = False
    finalize: str = ""
    extensions: tuple[str, ...] = ()
    filters: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
