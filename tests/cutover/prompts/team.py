"""What a team might have: environments of its own."""

from __future__ import annotations

import posixpath

from jinja2 import DictLoader, Environment, StrictUndefined
from jinja2.nativetypes import NativeEnvironment


class Relative(Environment):
    """Names of templates are relative to those that name them."""

    def join_path(self, template: str, parent: str) -> str:
        """Give the name of a template another names."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(parent), template))


ENVIRONMENT = Relative(
    variable_start_string="<<",
    variable_end_string=">>",
    trim_blocks=True,
    undefined=StrictUndefined,
    loader=DictLoader({"shared/head.j2": "Head << a >>\n"}),
)
NATIVE = NativeEnvironment()


def made() -> Environment:
    """Make one."""
    return ENVIRONMENT
