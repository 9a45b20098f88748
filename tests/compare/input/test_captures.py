"""Lines become runs, and runs exchanges."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.captures import Question, compare_segment
from compare.input import captures as reading
from compare.input.captures import CapturedExchange, exchanges
from compare.input.damage import Damage
from compare.input.segments import CapturedLine
from contract.flows import SPECS
from contract.records import RunRecord, decode_run, encode_run
from cutover.selftest.exchanges import Script, exchange


def test_a_run_that_asked_something_else_is_read_back_as_written() -> None:
    """Play logs carry the arguments that are not on the tape."""
    for run in exchange(graph=Script(system="冷")):
        again = decode_run(encode_run(run))
        assert encode_run(again) == encode_run(run)
        assert [play.args is None for play in again.plays] == [
            play.args is None for play in run.plays
        ]


def test_contiguous_runs_of_one_id_are_an_exchange() -> None:
    """Damage between two runs of an exchange does not part them."""
    first, second = exchange(number=0), exchange(number=1)
    torn = Damage("torn", "memory", "here")
    written = [CapturedLine(k, encode_run(run).rstrip()) for k, run in enumerate((*first, *second))]
    read = list(exchanges([written[0], torn, *written[1:]], "memory"))
    assert read[0] == torn
    assert [len(item.runs) for item in read[1:] if not isinstance(item, Damage)] == [2, 2]


def started(number: int) -> tuple[RunRecord, ...]:
    """Make the runs of an exchange whose record says that a second run was started."""
    serving, *others = exchange(number=number)
    return (msgspec.structs.replace(serving, shadow="due"), *others)


def as_lines(runs: list[RunRecord]) -> list[CapturedLine]:
    """Write runs as lines."""
    return [CapturedLine(number, encode_run(run).rstrip()) for number, run in enumerate(runs, 1)]


@given(st.permutations(range(12)))
def test_the_runs_of_an_exchange_are_found_wherever_they_stand(order: list[int]) -> None:
    """Every order of lines has the same pairs; nothing is missing, and nothing counted twice."""
    written = [run for number in range(6) for run in started(number)]
    runs = [written[at] for at in order]
    read = list(exchanges(as_lines(runs), "memory"))
    assert (
        sorted([run.role for run in one.runs] for one in read if isinstance(one, CapturedExchange))
        == [["serving", "shadow"]] * 6
    )
    tally = compare_segment(as_lines(runs), "memory", Question(SPECS))
    assert (tally.exchanges, tally.missing, tally.not_comparable.total()) == (6, 0, 0)


def test_a_second_run_that_never_comes_is_missing() -> None:
    """Beside damage it may have stood in what was lost, however far away."""
    first, second, third = (started(number) for number in range(3))
    torn = Damage("torn", "memory", "here")
    lines = as_lines([first[0], *second])
    read = list(exchanges([*lines, torn, *as_lines([*third])], "memory"))
    found = {
        one.runs[0].exchange: (len(one.runs), one.beside_damage)
        for one in read
        if isinstance(one, CapturedExchange)
    }
    assert found[first[0].exchange] == (1, True)
    assert found[second[0].exchange][0] == 2
    tally = compare_segment(lines, "memory", Question(SPECS))
    assert (tally.exchanges, tally.missing) == (2, 1)


@pytest.mark.parametrize("shares", [True, False])
def test_frames_kept_for_second_runs_are_bounded_by_size(
    monkeypatch: pytest.MonkeyPatch, *, shares: bool
) -> None:
    """A few long lines weigh as much as thousands of short ones; the runs read are the same."""
    runs = [run for number in range(3) for run in started(number)]
    ordered = [*runs[::2], *runs[1::2]]
    lines = as_lines(ordered)
    if not shares:
        monkeypatch.setattr(reading, "_AWAITED_BYTES", len(lines[2].data))
    read = [item for item in exchanges(lines, "memory") if isinstance(item, CapturedExchange)]
    assert [run.frames for item in read for run in item.runs] == [run.frames for run in runs]
    texts = [[run.frames[0][1] for run in item.runs] for item in read]
    assert [first is second for first, second in texts] == [shares, shares, True]
