"""What the bench of prompts measures is what it says."""

from __future__ import annotations

from pathlib import Path

from cutover.prompts.conversion import checked
from cutover.prompts_bench import EVERY, write
from router.config import PromptSettings


def test_one_template_in_ten_stays(tmp_path: Path) -> None:
    """Each has twenty lines, and its text is another."""
    write(tmp_path, 20)
    found = checked(tmp_path, PromptSettings(), lambda _: None)
    stay = [judged for judged in found.judged.values() if judged.label == "stays"]
    assert [judged.reasons[0].kind for judged in stay] == ["loop"] * (20 // EVERY)
    assert len({judged.text for judged in found.judged.values()}) == 19
    files = [path for path in tmp_path.iterdir() if path.name != "_base.j2"]
    assert {len(path.read_text("utf-8").splitlines()) for path in files} == {20}
