"""Faults in the code of both stacks, which were written before any test of comparison was read."""

from __future__ import annotations

import shutil
import sys
import tomllib
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from compare.differences import differences
from effects import conversations
from effects.conversations import Turn
from effects.memory import Memory, namespace
from harness.config import ModelTable
from loadtests.simulator import Answer, FunctionCall
from tests.compare.exchanges import Compared, compared
from tests.compare.test_differences import brief
from tests.flows import golden
from tests.flows.golden_case import SETTINGS, Case
from tests.flows.samples import PICTURE
from tests.support.stage import staged
from tests.support.virtual_time import VirtualLoop

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

DATA = tomllib.loads(Path(__file__).with_name("blind.toml").read_text("utf-8"))
FAULTS = {f"{n} {one['exchange']}: {one['module']}": one for n, one in enumerate(DATA["faults"], 1)}
SET = SETTINGS | {"models": SETTINGS["models"] | {"eye": ModelTable()}}
BEFORE = {"user_id": "u", "at": "2026-01-02T03:04:05Z"}


def by_day(names: Any) -> list[Any]:
    """Return all names, of which nine of ten are for the night."""
    night = pytest.mark.nightly
    return [pytest.param(one, marks=night if at % 10 else ()) for at, one in enumerate(names)]


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let virtual time go on whenever it is read: what happens in a process has an order."""
    time = VirtualLoop.time
    ticks = lambda loop: loop.stand_still(1e-6) or time(loop)  # noqa: E731 - one line
    monkeypatch.setattr(VirtualLoop, "time", ticks)


def plant(patch: pytest.MonkeyPatch, folder: Path, module: str, old: str, new: str) -> None:
    """Load a stack anew, from a copy in which a text is another one, until the test ends."""
    package = module.partition("/")[0]
    import_module(package)  # what is put back at the end has to be there
    shutil.copytree(package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / module).read_text("utf-8")
    assert source.count(old) == 1, "the source has changed: write the fault anew"
    (folder / module).write_text(source.replace(old, new), "utf-8")
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        patch.delitem(sys.modules, name)
    patch.setattr(sys, "dont_write_bytecode", True)
    patch.syspath_prepend(folder)
    assert Path(str(import_module(package).__file__)).is_relative_to(folder)


async def exchange(name: str, serves: str = "legacy", plays: str = "graph") -> Compared:
    """Serve an exchange by one stack, and play its tape to the other."""
    row: dict[str, Any] = deepcopy(DATA["exchanges"][name])
    workers, body = row.pop("workers", {}), row.pop("body")
    turns, memories = row.pop("turns", ()), row.pop("memories", ())
    body |= {"image": PICTURE} if "image" in body else {}
    answers = tuple(
        Answer(**one | {"tool_calls": tuple(FunctionCall(**c) for c in one.get("tool_calls", ()))})
        for one in row.pop("answers")
    )
    case = Case(name, body=body, answers=answers, expected=(), **row)
    chat = body.get("session_id") or "c"
    async with staged(chunk_ms=300.0, workers=workers, **SET) as stage:
        for number, turn in enumerate(turns, 1):
            await conversations.add(Turn(f"t{number}", case.flow, chat, **BEFORE | turn))
        for number, one in enumerate(memories, 1):
            memory = Memory(f"k{number}", session_id="before", **one)
            await stage.world.memory.aput(namespace("u"), memory.id, memory.value())
        told, _ = await golden.record(stage, case, serves)
        return compared(told.exchange, await stage.play(told, plays))


@pytest.mark.parametrize("name", by_day(DATA["exchanges"]))
async def test_a_healthy_exchange_has_no_finding(name: str) -> None:
    """Whichever stack serves; what is found where a fault is planted comes from the fault."""
    for both in (("legacy", "graph"), ("graph", "legacy")):
        healthy = await exchange(name, *both)
        assert differences(healthy.pair, healthy.flow).differences == (), both


@pytest.mark.parametrize("name", by_day(FAULTS))
async def test_a_blind_fault_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the first cause names its place, or the one that the row says it names `instead`."""
    fault = FAULTS[name]
    plant(monkeypatch, tmp_path, fault["module"], fault["old"], fault["new"])
    faulty = await exchange(fault["exchange"])
    causes = brief(differences(faulty.pair, faulty.flow))
    assert bool(causes) == ("missed" not in fault)
    (place, path), first = fault["cause"], next(iter(causes), "")
    if "instead" in fault:
        assert first == fault["instead"]
    elif causes:
        assert (place in first.split(), path in first) == (True, True)


def test_the_faults_are_enough() -> None:
    """Of at least a hundred, 98 % are found, and 90 % at their place."""
    missed, elsewhere = (sum(k in one for one in FAULTS.values()) for k in ("missed", "instead"))
    assert len(FAULTS) >= 100
    assert missed <= 0.02 * len(FAULTS)
    assert missed + elsewhere <= 0.1 * len(FAULTS)
