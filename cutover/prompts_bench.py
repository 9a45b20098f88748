"""Measures how fast prompts are checked and proved; its rows go to standard output as JSON.

python -m cutover.prompts_bench CHECKED PROVED
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cutover.prompts.conversion import Checked, cases_of, checked, outcomes
from cutover.prompts.proving import Orders, prove_all
from loadtests.bench.row import Row, at_most, told
from router.config import PromptSettings

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

SECONDS = 10.0
EVERY = 10
"""One template in so many has a loop over what is passed, and stays."""
_LINES = (
    "{% extends '_base.j2' %}",
    "{% block rules %}",
    "{# what the assistant is told first #}",
    "{% set tone = 'warm' %}",
    "Be {{ tone|upper }}, {{ bot }}, number NUMBER.",
    "今天是 {{ date }}，现在是 {{ time }}。",
    'Answer as JSON: {"answer": "…", "sources": [{"url": "…"}]}',
    "{% for rule in ['brief', 'kind', 'honest'] -%}",
    "{{ loop.index }}. Be {{ rule }}{{ ';' if not loop.last else '.' }}",
    "{% endfor -%}",
    "{% if tone == 'warm' %}",
    "Smile at {{ user }}.",
    "{% else %}",
    "Never smile.",
    "{% endif %}",
    "{% raw %}{{ this is no variable }}{% endraw %}",
    "The question: {{ question }}",
    "{{ super() }}",
    "Topic: {{ topic }}",
    "{% endblock %}",
)
_BASE = "You are {{ bot }}.\n{% block rules %}Answer {{ user }}.\n{% endblock %}Bye.\n"
_LOOP = "{% for message in messages %}{{ message }}{% endfor %}"


def main() -> None:
    """Measure and print."""
    many, proved = map(int, sys.argv[1:])
    with TemporaryDirectory() as folder:
        sys.stdout.buffer.write(msgspec.json.encode(measure(Path(folder), many, proved)))


def measure(folder: Path, many: int, proved: int) -> list[Row]:
    """Check so many prompts, and prove some of them."""
    write(folder, many)
    found, seconds = _timed(lambda: checked(folder, PromptSettings(), _silent), time.process_time)
    how = (
        f"{many:,} templates of {len(_LINES)} lines, one in {EVERY} of which stays, without proof; "
        "processor time, of one process"
    )
    return [
        at_most("prompts.check", seconds, "s", SECONDS, how),
        told("prompts.check.rate", many / seconds, "templates/s", how),
        *_proofs(found, proved),
    ]


def write(folder: Path, many: int) -> None:
    """Write templates as projects have them; each with all that converts."""
    (folder / "_base.j2").write_text(_BASE, "utf-8")
    for number in range(many):
        lines = [line.replace("NUMBER", str(number)) for line in _LINES]
        if number % EVERY == 0:
            lines[-2] = _LOOP
        (folder / f"{number:05}.j2").write_text("\n".join(lines), "utf-8")


def _proofs(found: Checked, many: int) -> list[Row]:
    fit = [entry for entry in found.report().prompts if entry.label != "stays"][:many]
    cases = cases_of(found, outcomes(found, fit, found.folder))
    orders = Orders(found.settings, found.folder)
    proofs, seconds = _timed(lambda: prove_all(cases, orders, _silent), time.perf_counter)
    if not all(proof.holds for proof in proofs.values()):
        raise ValueError(proofs)
    values = sum(proof.values for proof in proofs.values())
    how = f"{len(cases)} prompts on {values:,} drawings of values, starting processes included"
    return [told("prompts.proved", len(cases) / seconds, "templates/s", how)]


def _timed(work: Callable[[], _T], clock: Callable[[], float]) -> tuple[_T, float]:
    began = clock()
    done = work()
    return done, clock() - began


def _silent(_: int) -> None:
    """Tell nobody."""


if __name__ == "__main__":
    main()
