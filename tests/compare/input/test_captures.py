"""Lines become runs, and runs exchanges."""

from __future__ import annotations

from compare.input.captures import exchanges
from compare.input.damage import Damage
from compare.input.segments import CapturedLine
from contract.records import decode_run, encode_run
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
