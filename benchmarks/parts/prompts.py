"""Measures how fast prompts are checked and proved; its rows go to standard output as JSON.

python -m benchmarks.parts.prompts CHECKED PROVED
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.rows import BenchRow, at_most, reported
from cutover.prompts.examination import ExaminationOrder, examine_folder
from router.config.schema import PromptSettings

SECONDS = 10.0
EVERY = 10
"""One template in so many has a loop over a variable, and stays."""
_LINES = (
    "{% extends '_base.j2' %}",
    "{% block rules %}",
    "{# what the assistant reads first #}",
    "Be {{ 'warm'|upper }}, {{ bot }}, number NUMBER.",
    "今天是 {{ date }}，现在是 {{ time }}。",
    'Answer as JSON: {"answer": "…", "sources": [{"url": "…"}]}',
    "1. Be brief.",
    "2. Be kind.",
    "3. Be honest{{ ';' if false else '.' }}",
    "{% include '_smile.j2' %}",
    "Smile at {{ guest.name }}.",
    "{# nothing #}",
    "Never frown.",
    "{{ 60 * 24 }} minutes a day.",
    "{% raw %}{{ this is no variable }}{% endraw %}",
    "The question: {{ question }}",
    "{{ super() }}",
    "Topic: {{ topic }}",
    "{{ notes[0] }}",
    "{% endblock %}",
)
_SMILE = "Smile. {{ mood }}\n"
_BASE = "You are {{ bot }}.\n{% block rules %}Answer {{ user }}.\n{% endblock %}Bye.\n"
_LOOP = "{% for message in messages %}{{ message }}{% endfor %}"


def main() -> None:
    """Measure and print."""
    many, proved = map(int, sys.argv[1:])
    with TemporaryDirectory() as folder:
        sys.stdout.buffer.write(msgspec.json.encode(measure(Path(folder), many, proved)))


def measure(folder: Path, many: int, proved: int) -> list[BenchRow]:
    """Check so many prompts, and prove some of them."""
    write(folder, many)
    order = ExaminationOrder(PromptSettings(), folder)
    began = time.perf_counter()
    examine_folder(order, _ignore)
    seconds = time.perf_counter() - began
    how = (
        f"{many:,} templates of {len(_LINES)} lines, one in {EVERY} of which stays, without proof; "
        "on all cores, starting processes included"
    )
    return [
        at_most("prompts.check", seconds, "s", SECONDS, how),
        reported("prompts.check.rate", many / seconds, "templates/s", how),
        *_proofs(folder, proved),
    ]


def write(folder: Path, many: int) -> None:
    """Write templates as projects have them; each with all that converts."""
    (folder / "_base.j2").write_text(_BASE, "utf-8")
    (folder / "_smile.j2").write_text(_SMILE, "utf-8")
    for number in range(many):
        lines = [line.replace("NUMBER", str(number)) for line in _LINES]
        if number % EVERY == 0:
            lines[-2] = _LOOP
        (folder / f"{number:05}.j2").write_text("\n".join(lines), "utf-8")


def _proofs(folder: Path, many: int) -> list[BenchRow]:
    below = folder / "proved"
    below.mkdir()
    write(below, many)
    began = time.perf_counter()
    found = examine_folder(ExaminationOrder(PromptSettings(), below, prove=True), _ignore)
    seconds = time.perf_counter() - began
    proofs = [prompt.proof for prompt in found if prompt.proof is not None]
    if not all(proof.holds for proof in proofs):
        raise ValueError(proofs)
    values = sum(proof.values for proof in proofs)
    how = f"{len(proofs)} prompts on {values:,} sets of values, starting processes included"
    return [reported("prompts.proved", len(proofs) / seconds, "templates/s", how)]


def _ignore(_: int) -> None:
    """Show no progress."""


if __name__ == "__main__":
    main()
