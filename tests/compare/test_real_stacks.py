"""Real runs of both stacks: equal as they are; the self-test's faults are found in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contract.records import RunRecord
from cutover.selftest.cases import Case, case
from cutover.selftest.runs import causes, chat_stack, serve, shadow
from cutover.selftest.stream_faults import SCENE
from graph_impl.chat import chat
from graph_impl.templates import FOLDER
from router.serving.stack import LocalStack
from tests.support.flow_runs import STACKS

pytestmark = pytest.mark.virtual


async def runs(drawn: Case, candidate: LocalStack) -> tuple[RunRecord, RunRecord]:
    """Serve a case on legacy, and shadow it on a candidate."""
    serving = await serve(STACKS["legacy"], drawn)
    return serving, await shadow(candidate, drawn, serving)


@pytest.mark.parametrize("seed", range(30))
async def test_both_stacks_are_equal(seed: int) -> None:
    """Drawn requests, with tools, faults and refusals: no finding."""
    assert causes(await runs(case(seed), STACKS["graph"])) == ()


async def test_a_changed_prompt_is_found_in_the_effects(tmp_path: Path) -> None:
    """One word more in the prompt's file."""
    folder = tmp_path / "prompts"
    shutil.copytree(FOLDER, folder)
    for prompt in folder.iterdir():
        prompt.write_text(prompt.read_text("utf-8") + "\n请简短。", "utf-8")
    [cause] = causes(await runs(SCENE, chat_stack("graph", chat(folder))))
    assert (cause.layer, cause.kind) == ("effects", "prompt_changed")
