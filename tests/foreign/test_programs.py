"""Programs as anyone writes them, put on the tape by a few lines."""

import difflib
from pathlib import Path

import pytest

from cutover.errors import Completed
from harness.root import equal_shadow
from loadtests.simulator import Simulator
from tests.support.ask import ASK, Ask
from tests.support.programs import PROGRAMS, opened
from tests.support.served import ask
from tests.support.stage import breaking

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

NAMES = sorted(path.stem for path in (PROGRAMS / "before").glob("*.py"))
GRAPH = "research_graph"
MOST_LINES = 10
QUESTION = Ask("What time is it, and what is 12 * 7?")


def code(path: Path) -> list[str]:
    """Return a file's lines of code: without docstrings, which are one line each, and blanks."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith('"""')]


def changed(before: Path, after: Path) -> int:
    """Return how many lines of code differ between two files."""
    matcher = difflib.SequenceMatcher(None, code(before), code(after), autojunk=False)
    return sum(
        max(i2 - i1, j2 - j1) for op, i1, i2, j1, j2 in matcher.get_opcodes() if op != "equal"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_put_on_the_tape_by_a_few_lines(name: str) -> None:
    """Transport, effects and the flow's stack together change no more lines of code."""
    before, after = (PROGRAMS / folder / f"{name}.py" for folder in ("before", "after"))
    assert 0 < changed(before, after) <= MOST_LINES


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("name", [name for name in NAMES if name != GRAPH])
async def test_outside_an_exchange_nothing_changes(name: str) -> None:
    """A program with transport and effects says what it said without them."""
    question = "Tell me about rivers."
    said = []
    for folder in ("before", "after"):
        async with opened(folder, name) as program:
            said.append("".join([text async for text in program.answer(question)]))
    assert said[0]
    assert said[0] == said[1]


@pytest.mark.parametrize("name", NAMES)
async def test_a_shadow_is_equal_and_performs_nothing(sim: Simulator, name: str) -> None:
    """A shadow says the same, finds every call, and the provider hears nothing of it."""
    async with opened("after", name) as program:
        stack = program.stack
        heard = await ask(ASK, QUESTION, stack)
        assert heard.error is None
        assert isinstance(heard.outcome, Completed), heard.outcome
        assert heard.text
        asked = len(sim.requests)
        played = await heard.shadow(stack)
        assert equal_shadow(heard.served, played), (played.outcome, played.run.plays)
        assert len(sim.requests) == asked


@pytest.mark.parametrize("how", ["exception", "cancellation", "wrong_event"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_program_takes_over_from_itself(sim: Simulator, name: str, how: str) -> None:
    """Broken in mid-stream, the stream is whole, and the model is not asked a second time."""
    async with opened("after", name) as program:
        stack = program.stack
        whole = await ask(ASK, QUESTION, stack)
        asked = len(sim.requests)
        pieces = len(whole.events) - 1
        for at in sorted({0, 1, pieces // 2, pieces}):
            before = len(sim.requests)
            heard = await ask(ASK, QUESTION, breaking(at, how)(stack), stack)
            assert isinstance(heard.outcome, Completed), (at, heard.outcome)
            # The time is another one in each exchange.
            assert len(heard.text) == len(whole.text), at
            assert heard.events[-1] == {"type": "done"}
            assert len(sim.requests) - before == asked, at
