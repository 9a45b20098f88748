"""Templates as projects have them: the verdict on each, and that what converts is equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import FileSystemLoader

from cutover.prompts.environment import environment_of, team_environment
from cutover.prompts.judgement import JudgedTemplate, ProofCase, judge, nested
from cutover.prompts.proof import search
from graph_impl.templates import prompt_of
from router.config.loader import convert_table
from router.config.schema import PromptSettings
from tests.cutover.prompts.corpus import CARE, CONVERTS, SAMPLES, STAYS, Sample

NAME = "it.j2"


def laid_out(sample: Sample, folder: Path) -> tuple[PromptSettings, JudgedTemplate]:
    """Write a sample's files and judge it."""
    for name, text in {NAME: sample.text, **sample.files}.items():
        (folder / name).write_bytes(text.encode())
    settings = convert_table(sample.settings, PromptSettings, "test", "prompts.")
    return settings, judge(environment_of(settings, folder), NAME)


def reported(judged: JudgedTemplate) -> set[tuple[str, int]]:
    """Return kind and line of each reason and caution."""
    found: list[Any] = [*judged.reasons, *judged.cautions]
    return {(why.kind if why.file == NAME else f"{why.kind}@{why.file}", why.line) for why in found}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_the_verdict_on_a_template(sample: Sample, tmp_path: Path) -> None:
    """Its label, and kind and line of each reason, with a detail and what to do."""
    _, judged = laid_out(sample, tmp_path)
    assert (judged.label, reported(judged)) == (sample.label, set(sample.why)), judged.reasons
    assert all(why.detail and why.todo for why in judged.reasons)


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.label != STAYS], ids=lambda sample: sample.name
)
def test_what_converts_is_equal(sample: Sample, tmp_path: Path) -> None:
    """Byte for byte with what the team's own environment renders."""
    settings, judged = laid_out(sample, tmp_path)
    own = team_environment(settings)
    own.loader = FileSystemLoader(tmp_path)
    template, render = own.get_template(NAME), prompt_of(judged.text)
    found = search(
        ProofCase(NAME, (NAME,), judged.paths, judged.text),
        lambda values: [template.render(nested(judged.paths, values))],
        lambda values: [render(values)],
        count=5,
    )
    assert found.holds, found
    assert found.values >= (26 if judged.paths else 1)


def test_there_are_many_and_of_each_kind() -> None:
    """Over a hundred; none twice."""
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) > 100
    assert {sample.label for sample in SAMPLES} == {CONVERTS, CARE, STAYS}
