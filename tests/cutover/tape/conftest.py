"""What every test of the tape has: no run of another test that plays."""

from collections.abc import Iterator

import pytest

from cutover.errors import Completed
from cutover.tape import outside, playing


@pytest.fixture(autouse=True)
def no_run_left_playing() -> Iterator[None]:
    """End the runs a test has left playing: they refuse writes outside of runs."""
    outside.clear()
    yield
    for run in tuple(playing):
        run.end(Completed())
    outside.clear()
