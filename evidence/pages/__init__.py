"""Pages: the one design of all reports, as self-contained HTML.

A report's template extends `base.html.j2` (blocks `title`, `styles`, `skip`, `header`, `main`,
`footer`, and `tone`: good, bad or unknown) and takes macros from `parts.html.j2`.
"""

from evidence.pages.formats import duration, percent
from evidence.pages.templates import PageTemplates

__all__ = ["PageTemplates", "duration", "percent"]
