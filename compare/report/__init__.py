"""Reports of a comparison: JSON for machines, Markdown for reviews, one HTML page for people."""

from compare.report.document import Report, report_of
from compare.report.markdown import markdown
from compare.report.page import page

__all__ = ["Report", "markdown", "page", "report_of"]
