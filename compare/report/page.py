"""Renders the templates of this folder: one look for every page, hostile text stays text."""

import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

FOLDER: Final = Path(__file__).parent
_SECOND_MS: Final = 1_000


def percent(share: float | None) -> str:
    """Return a share such as 0.0123 as `1.23 %`, — for none."""
    return "—" if share is None else f"{share * 100:.3g} %"


def milliseconds(value: float | None) -> str:
    """Return milliseconds with three digits, as seconds from one on, — for none."""
    if value is None:
        return "—"
    return f"{value:,.3g} ms" if abs(value) < _SECOND_MS else f"{value / _SECOND_MS:,.3g} s"


def moment(microseconds: int) -> str:
    """Return a moment since 1970 as UTC, to the second."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{microseconds} µs"


def counted(count: int, noun: str) -> str:
    """Return a count of things, the noun in its number."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_MARKS: Final = {" ": "·", "\n": "⏎\n", "\t": "⇥\t", "\r": "␍"}
_LIKELY: Final = re.compile(r" (?!\S)|(?<!\S) |[^ \w!-~]")


def visible(text: str) -> str:
    """Return a text whose invisible characters can be seen, and spaces that are not expected."""
    return _LIKELY.sub(lambda found: _marked(found[0]), text)


def _marked(one: str) -> str:
    hidden = unicodedata.category(one) in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    return _MARKS.get(one) or (f"⟨U+{ord(one):04X}⟩" if hidden else one)


def plain(text: str) -> str:
    """Return a text on one line of Markdown, in which nothing is markup."""
    return re.sub(r"[\\<>*_\[\]|#&`~]", r"\\\g<0>", re.sub(r"\s+", " ", text))


def environment(folder: Path) -> Environment:
    """Return the templates of a folder, which may use those of this one."""
    made = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=select_autoescape(("html.j2", "xml.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {one.__name__: one for one in (percent, milliseconds, moment, visible, plain)}
    made.globals["counted"] = counted
    return made


_environment = environment(FOLDER)


def render(template: str, /, **values: Any) -> str:
    """Return a template of this folder, filled in."""
    return _environment.get_template(template).render(values)
