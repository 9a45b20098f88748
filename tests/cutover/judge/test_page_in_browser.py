"""The page of pairs in a real browser: clicked, typed, exported, and alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from cutover.judge.judgements import PageExport
from cutover.judge.page import judge_page
from evidence.preferences import AnswerPair, candidate_first
from tests.support.browser import OVERHANG, browsing, chromium_program
from tests.support.deployment import moment
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

PAIRS = [
    AnswerPair(f'e"{k}', "chat", 1_795_000_000_000_000 + k, "Why?\x1b", f"old <b>{k}", f"new {k}")
    for k in range(3)
]
CLICK = "document.querySelectorAll('section.pair')[{}].querySelector('button[value={}]').click()"


def test_the_page_names_no_stack() -> None:
    """Nothing in it says which answer is whose; nothing in it is markup or a control character."""
    html = judge_page(PAIRS, 0, "captures")
    assert not {"legacy", "graph", "control", "candidate"} & set(
        html.split("<main>")[1].replace('"', " ").replace(">", " ").split()
    )
    assert "old &lt;b&gt;0" in html
    assert "\x1b" not in html


async def test_choices_survive_a_reload_and_are_exported(tmp_path: Path) -> None:
    """By mouse and by key; the page fits its window, and asks for nothing but itself."""
    file = tmp_path / "judge.html"
    file.write_text(judge_page(PAIRS, 7, "captures"), "utf-8")
    async with browsing(chromium_program(), tmp_path / "profile") as tab:
        for width, dark in ((390, True), (1300, False)):
            await tab.open(file, width=width, dark=dark)
            assert await tab.value(OVERHANG) == 0
            assert await tab.value("document.getElementById('export').disabled") is True
        await tab.value(CLICK.format(0, "a"))
        await tab.value(CLICK.format(1, "skip"))
        await tab.value(CLICK.format(1, "tie"))
        await tab.value("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'b'}))")
        async with asyncio.timeout(PATIENCE_S):
            # The browser stores what a page keeps in its own time: a reload may come before that.
            while await tab.value("document.getElementById('done').textContent") != "3":
                await moment()
            await tab.open(file, width=1300, dark=False)
            while await tab.value("document.getElementById('done').textContent") != "3":
                await tab.open(file, width=1300, dark=False)
        exported = await tab.value(
            """new Promise(resolve => {
                URL.createObjectURL = blob => { blob.text().then(resolve); return '#'; };
                document.getElementById('export').click();
            })"""
        )
        assert tab.troubles() == []
        assert tab.requests() == [file.as_uri()]
    found = msgspec.convert(json.loads(exported), PageExport)
    assert (found.seed, [one.choice for one in found.judged]) == (7, ["a", "tie", "b"])
    assert [one.exchange for one in found.judged] == [pair.exchange for pair in PAIRS]
    expected = [
        "candidate" if candidate_first(PAIRS[0].exchange, 7) else "control",
        "tie",
        "control" if candidate_first(PAIRS[2].exchange, 7) else "candidate",
    ]
    assert [one.preferred for one in found.judgements()] == expected
