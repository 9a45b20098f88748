"""Messages answered by chance: live runs of both stacks, seeded."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from contract.records import RunRecord
from cutover.selftest.exchanges import Script, batch, exchange, store

WORDS = ("晴", "多云", "微风", "二十度", "适合", "出门", "记得", "带伞", "傍晚", "转凉")
DAY_US = 86_400_000_000


def answer(number: int, take: int, words: tuple[str, ...] = WORDS) -> Script:
    """Answer a message as a model does: another answer every time it is asked."""
    drawn = random.Random(number * 1_000 + take)
    return Script(pieces=tuple(drawn.choices(words, k=12)))


def live(script: Script, number: int, stack: str, take: int = 0) -> tuple[RunRecord]:
    """Give one run that asked the model itself, of its own exchange."""
    run, _ = exchange(script, script, number=number, served=stack)
    return (msgspec.structs.replace(run, began=run.began + take * DAY_US),)


def places(
    folder: Path, messages: int, words: tuple[str, ...] = WORDS, again: int = 2
) -> tuple[Path, list[Path]]:
    """Store graph's live runs, and legacy's of the same messages in places of their own."""
    graph = batch(*(live(answer(n, 99, words), n, "graph") for n in range(messages)))
    legacy = [
        batch(*(live(answer(n, take), n, "legacy", take) for n in range(messages)))
        for take in range(again)
    ]
    kept = [store(folder / f"legacy-{take}", lines) for take, lines in enumerate(legacy)]
    return store(folder / "graph", graph), kept
