"""What the bench of prompts measures is what it says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parts.prompts import EVERY, write
from cutover.prompts.examination import ExaminationOrder
from router.config.schema import PromptSettings
from tests.cutover.prompts.test_environment import examined


def test_one_template_in_ten_stays(tmp_path: Path) -> None:
    """Each has twenty lines, and its text differs from the others'."""
    write(tmp_path, 20)
    found = examined(ExaminationOrder(PromptSettings(), tmp_path))
    stay = [prompt.templates[0] for prompt in found if prompt.label == "stays"]
    assert [judged.reasons[0].kind for judged in stay] == ["loop"] * (20 // EVERY)
    assert len({prompt.content for prompt in found}) == 19
    files = [path for path in tmp_path.iterdir() if not path.name.startswith("_")]
    assert {len(path.read_text("utf-8").splitlines()) for path in files} == {20}
