"""Looks of a ramp: each reads what was captured since the one before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cutover.cli.operate.ramp import RampPlace
from cutover.ramp.flags import FakeFlags
from cutover.ramp.machine import Flags
from cutover.selftest.exchanges import batch, exchange, store
from evidence.decision import Decision
from tests.compare.noise.messages import answer, live, places

OPENED: list[str] = []
WATCHED: list[Path] = []
CONFIGURATION = """
[flows.chat]
enable_langgraph = true
langgraph_percent = 25.0
shadow_percent = 100.0
[gate]
selftest = false
"""


def note_opened(event: str, arguments: tuple[object, ...]) -> None:
    """Note the segments that this process opens below the watched folder."""
    if event == "open" and WATCHED and str(arguments[0]).startswith(str(WATCHED[0])):
        OPENED.append(Path(str(arguments[0])).name)


sys.addaudithook(note_opened)


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """Collect the names of the files that are opened."""
    OPENED.clear()
    WATCHED.append(folder)
    try:
        yield OPENED
    finally:
        WATCHED.clear()


def test_a_look_opens_what_is_new_and_decides_as_if_it_had_read_all(tmp_path: Path) -> None:
    """Each segment is opened once, whatever the gate asks of it, and no more afterwards."""
    config, folder = tmp_path / "cutover.toml", tmp_path / "captures"
    config.write_text(CONFIGURATION, "utf-8")
    place = RampPlace("chat", config, str(folder), None)
    writer = FakeFlags(Flags(enabled=True, percent=25.0))
    decide = place.decider(writer)

    def look() -> tuple[Decision, list[str]]:
        with opened(folder) as names:
            return decide(50.0, None), sorted(name for name in names if name.endswith(".zst"))

    for name in "abc":
        store(folder, batch(exchange(number=ord(name))), name=f"{name}.jsonl.zst")
    first, names = look()
    assert names == ["a.jsonl.zst", "b.jsonl.zst", "c.jsonl.zst"]
    assert look() == (first, [])
    store(folder, batch(exchange(number=200)), name="d.jsonl.zst")
    second, names = look()
    assert names == ["d.jsonl.zst"]
    assert second == place.decider(writer)(50.0, None) != first


def test_a_look_at_live_shadows_opens_each_segment_once(tmp_path: Path) -> None:
    """Their noise comes with the pairs, and what is known of a segment has it."""
    config, folder = tmp_path / "cutover.toml", tmp_path / "captures"
    mode = '[shadow]\nmode = "live"\nrequests_per_day = 99\n'
    config.write_text(CONFIGURATION + mode, "utf-8")
    _, again = places(tmp_path, 6)
    place = RampPlace("chat", config, str(folder), None, tuple(map(str, again)))
    writer = FakeFlags(Flags(enabled=True, percent=25.0))
    decide = place.decider(writer)
    for number, name in enumerate("abc"):
        (served,) = live(answer(number, 0), number, "legacy")
        (graph,) = live(answer(number, 9), number, "graph")
        shadow = msgspec.structs.replace(graph, role="shadow", assigned="legacy", served="legacy")
        store(folder, batch((served, shadow)), name=f"{name}.jsonl.zst")
        with opened(folder) as names:
            decision = decide(50.0, None)
        assert [one for one in names if one.endswith(".zst")] == [f"{name}.jsonl.zst"]
        [noise] = [one for one in decision.checks if one.name == "noise"]
        assert noise.n == number + 1
        assert decision == place.decider(writer)(50.0, None)


def test_a_look_passes_noise_on_to_the_gate(tmp_path: Path) -> None:
    """Captures of legacy that are named to the ramp make the check that they make of the gate."""
    config, folder = tmp_path / "cutover.toml", tmp_path / "captures"
    config.write_text(CONFIGURATION, "utf-8")
    store(folder, batch(exchange()))
    again = store(tmp_path / "again", batch(exchange(number=7)))
    writer = FakeFlags(Flags(enabled=True, percent=25.0))
    for noise, checks in (((), 0), ((str(again),), 1)):
        decide = RampPlace("chat", config, str(folder), None, noise).decider(writer)
        names = [one.name for one in decide(50.0, None).checks]
        assert names.count("noise") == checks
