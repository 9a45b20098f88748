"""What every test of the tape has: no run of another test that plays."""

from collections.abc import Iterator

import pytest

from cutover.errors import Completed
from cutover.tape import outside, playing
from tests.support.tapes import World


@pytest.fixture(autouse=True)
def no_run_left_playing() -> Iterator[None]:
    """End the runs a test has left playing: they refuse writes outside of runs."""
    outside.clear()
    yield
    for run in tuple(playing):
        run.end(Completed())
    outside.clear()


@pytest.fixture
def world() -> World:
    """A world in which nothing was done."""
    return World()
