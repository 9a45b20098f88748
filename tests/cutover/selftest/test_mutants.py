"""Mutants of the graph stack: loaded in memory, found out, or explained."""

import ast
import sys
from pathlib import Path

import pytest

import graph_impl
from cutover.selftest.mutant_loading import loaded
from cutover.selftest.mutant_process import MutantProcess
from cutover.selftest.mutant_trials import Tapes
from cutover.selftest.mutants import all_mutants, sampled, try_mutants
from cutover.selftest.mutation import Mutant
from cutover.selftest.survivors import EXPLAINED
from cutover.wiring.stacks import load_stacks

FOLDER = Path(str(graph_impl.__file__)).parent
THERE = all_mutants(FOLDER)
RUN = (FOLDER / "engine.py").read_text("utf-8")
HANGS = ("engine", "_stop", "not task.done() → task.done()")


@pytest.fixture(scope="module")
def tapes() -> Tapes:
    """Serve the scenes and a few drawn cases."""
    return Tapes(load_stacks()["legacy"], "graph_impl", drawn=3)


def test_a_mutant_is_loaded_beside_the_real_one() -> None:
    """Imported modules are as before, and no file was touched."""
    before = sys.modules["graph_impl.engine"]
    tree = ast.parse(RUN + "\nMARK = 1\n")
    with loaded("graph_impl", "engine", tree) as flows:
        assert sys.modules["graph_impl.engine"].MARK == 1
        assert flows["chat"] is not graph_impl.FLOWS["chat"]
    assert sys.modules["graph_impl.engine"] is before
    assert (FOLDER / "engine.py").read_text("utf-8") == RUN


@pytest.mark.slow
def test_the_stack_as_it_is_behaves(tapes: Tapes) -> None:
    """Nothing is found in what was not changed: otherwise every mutant would be found."""
    assert tapes.try_out("engine", ast.parse(RUN)) is None


BROKEN = [
    ("await self._queue.join()", "await asyncio.sleep(1)", "compared"),
    ("await _stop(task)", "pass", "tasks left"),
    ("_END: Final = object()", "_END = missing", "not loaded"),
    ("interrupted = True", "pass", "did not let go"),
    ("await task\n", "pass\n", "hid a crash"),
    ("await self._queue.join()", "pass", "ran ahead"),
]


@pytest.mark.slow
# What a broken stack leaves behind is torn down by the garbage collector, and the engine complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("old", "new", "way"), BROKEN)
def test_a_broken_stack_is_found_out(tapes: Tapes, old: str, new: str, way: str) -> None:
    """By what it sends, by what it leaves behind or keeps to itself, by not being there."""
    assert old in RUN
    found = tapes.try_out("engine", ast.parse(RUN.replace(old, new)))
    assert found is not None
    assert found.way == way


@pytest.mark.slow
def test_a_mutant_that_hangs_is_found_out_and_the_next_one_tried() -> None:
    """Its process is ended, and another one goes on."""
    hanging, source = next(it for it in THERE if _key(it[0]) == HANGS)
    with MutantProcess(0.5, drawn=0) as process:
        assert process.try_out(hanging, source).way == "hung"
        assert process.try_out(*THERE[0]).way == "compared"


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.module, mutant.function, mutant.change


@pytest.mark.slow
def test_a_few_mutants_are_found_or_explained() -> None:
    """Ten drawn ones; all of them are tried by the command."""
    tried = try_mutants(THERE, sampled(THERE, 10), lambda _: None)
    assert (tried.tried, tried.there_are) == (10, len(THERE))
    assert tried.unexplained == ()
    assert tried.rate == 1.0
    assert tried.found + len(tried.survivors) == 10


def test_a_sample_is_always_the_same() -> None:
    """Drawn by a seed, in the order of the code; asking for more than there are gives all."""
    assert sampled(THERE, 7) == sampled(THERE, 7) == sorted(sampled(THERE, 7), key=THERE.index)
    assert sampled(THERE, 10**6) == THERE


def test_every_explanation_is_of_a_mutant_there_is() -> None:
    """Code that has gone takes its explanations with it."""
    keys = {(f"{mutant.module}.py", mutant.function, mutant.change) for mutant, _ in THERE}
    assert set(EXPLAINED) - keys == set()
    assert all(reason.strip() for reason in EXPLAINED.values())
