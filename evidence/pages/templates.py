"""Templates of pages: a report's own folder before the shared one, every value escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from contract.errors import visible
from evidence.pages.formats import duration, percent

SHARED = Path(__file__).parent


class PageTemplates:
    """Templates of one report; `filters` and `names` are what they use besides the shared ones."""

    def __init__(
        self,
        folder: Path,
        *,
        filters: Mapping[str, Callable[..., Any]] | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self._environment = Environment(
            loader=FileSystemLoader([folder, SHARED]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        self._environment.filters |= {"duration": duration, "percent": percent, **(filters or {})}
        self._environment.globals |= names or {}

    def render(self, template: str, **values: Any) -> str:
        """Render a template; control characters in values are written out."""
        return self._environment.get_template(template).render(values)


def _shown(value: object) -> object:
    # Type and not isinstance: text that is markup already (macros) stays as it is.
    return visible(value) if type(value) is str else value
