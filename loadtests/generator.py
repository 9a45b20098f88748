"""The generator's own account: a busy generator measures itself."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import msgspec

BUSIEST = 0.8
"""Above this share of one CPU the generator's stamps are late and its run is void."""


class GeneratorLoad(msgspec.Struct, frozen=True):
    """What one generator process used; seconds."""

    cpu: float
    wall: float

    @property
    def share(self) -> float:
        """Share of one CPU."""
        return self.cpu / self.wall if self.wall > 0 else 0.0


class GeneratorMeter:
    """Starts measuring when it is made."""

    def __init__(self) -> None:
        # What was imported lives for ever: the collector need not walk it in the middle of a run.
        gc.collect()
        gc.freeze()
        self._cpu = time.process_time()
        self._wall = time.monotonic()

    def load(self) -> GeneratorLoad:
        """What was used until now."""
        return GeneratorLoad(time.process_time() - self._cpu, time.monotonic() - self._wall)


def write_load(load: GeneratorLoad, folder: Path, name: str) -> None:
    """Leave the account beside the rows, whole or not at all: its writer may be killed over it."""
    beside = folder / f".generator-{name}"
    beside.write_bytes(msgspec.json.encode(load))
    beside.replace(folder / f"generator-{name}.json")


def read_loads(folder: Path) -> list[GeneratorLoad]:
    """Read the accounts of all generators that wrote into a folder."""
    paths = sorted(folder.glob("generator-*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=GeneratorLoad) for path in paths]
