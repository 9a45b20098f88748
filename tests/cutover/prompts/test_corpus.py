"""Templates as projects have them: what is said of each, and that it is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import FileSystemLoader

from cutover.prompts.case import Case
from cutover.prompts.environment import prompting, team_environment
from cutover.prompts.judging import Judged, judge
from cutover.prompts.proof import graph_way, search
from router.config import PromptSettings, convert_table
from tests.cutover.prompts.corpus import CARE, CONVERTS, SAMPLES, STAYS, Sample

NAME = "it.j2"


def laid_out(sample: Sample, folder: Path) -> tuple[PromptSettings, Judged]:
    """Write a sample's files and judge it."""
    for name, text in {NAME: sample.text, **sample.files}.items():
        (folder / name).write_bytes(text.encode())
    settings = convert_table(sample.settings, PromptSettings, "test", "prompts.")
    return settings, judge(prompting(settings, folder), NAME)


def said(judged: Judged) -> set[tuple[str, int]]:
    """Give kind and line of all that is said of a template."""
    found: list[Any] = [*judged.reasons, *judged.cares]
    return {(why.kind if why.file == NAME else f"{why.kind}@{why.file}", why.line) for why in found}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_is_said_of_a_template(sample: Sample, tmp_path: Path) -> None:
    """Its label, and kind and line of each reason; each says something and what to do."""
    _, judged = laid_out(sample, tmp_path)
    assert (judged.label, said(judged)) == (sample.label, set(sample.why)), judged.reasons
    assert all(why.said and why.todo for why in judged.reasons)


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.label != STAYS], ids=lambda sample: sample.name
)
def test_what_converts_is_equal(sample: Sample, tmp_path: Path) -> None:
    """Byte for byte with what the team's own environment renders, in no sandbox."""
    settings, judged = laid_out(sample, tmp_path)
    own = team_environment(settings, tmp_path)
    own.loader = FileSystemLoader(tmp_path)
    template = own.get_template(NAME)
    case = Case(NAME, (NAME,), judged.variables, judged.text)
    found = search(case, lambda values: [template.render(values)], graph_way(case), count=5)
    assert found.holds, found
    assert found.values >= (26 if judged.variables else 1)


def test_there_are_many_and_of_each_kind() -> None:
    """Over a hundred; none twice."""
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) > 100
    assert {sample.label for sample in SAMPLES} == {CONVERTS, CARE, STAYS}
