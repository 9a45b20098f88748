"""The page of pairs: one HTML file on which a person judges, and that exports the choices."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from contract.errors import visible
from cutover.judge.judgements import VERSION
from evidence.pages import PageTemplates
from evidence.preferences import AnswerPair, shown

_FOLDER = Path(__file__).parent
_VARIATION = "\ufe0f"


def judge_page(pairs: Sequence[AnswerPair], seed: int, captures: str) -> str:
    """Render the page; nothing is loaded from anywhere, and only its own script may run.

    It does not say which stack wrote which answer.
    """
    script = sha256(_templates().render("page.js").encode()).digest()
    name = sha256("\x1f".join((str(seed), *(pair.exchange for pair in pairs))).encode())
    return _templates().render(
        "page.html.j2",
        pairs=[shown(pair, seed) for pair in pairs],
        seed=seed,
        captures=captures,
        version=VERSION,
        sample=name.hexdigest()[:16],
        script_digest=b64encode(script).decode(),
    )


def readable(text: str) -> str:
    """Return a text as a person reads it: no character of it acts on a terminal or turns a line."""
    return visible(text.replace("\r\n", "\n").replace(_VARIATION, ""))


@cache
def _templates() -> PageTemplates:
    return PageTemplates(_FOLDER, filters={"readable": readable})
