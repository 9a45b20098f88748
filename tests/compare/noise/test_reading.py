"""Reading: runs joined by message, live ones told from replays, one tape held against itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from compare.captures import KnownParts, Question, compare_captures
from compare.input.pairing import Pair
from compare.noise import ControlChecker, LegacyAgain, NoiseTally, read_noise
from compare.noise.control import ControlCheck, control_pairs, control_text, owning_tape
from compare.noise.messages import Noise
from compare.report import Report, markdown, page, report_of
from contract.flows.chat import CHAT
from contract.records import RunRecord
from cutover.selftest.exchanges import Script, batch, exchange, store
from tests.compare.noise.messages import answer, live, places

FLOWS = {"chat": CHAT}


def noise_of(captures: Path, *again: Path) -> Noise:
    """Measure."""
    return read_noise(str(captures), [str(place) for place in again], FLOWS)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("again", [0, 1, 2])
def test_noise_comes_with_the_pairs(tmp_path: Path, again: int, processes: int) -> None:
    """One reading of the captures, in parts and by whatever process, measures what two did."""
    captures, others = places(tmp_path, 9, again=again)
    whole = [live(answer(n, take), n, "legacy", take)[0] for n, take in ((20, 0), (20, 1))]
    graph = live(answer(20, 9), 20, "graph")
    store(captures, batch((*whole, *graph), exchange(number=30)), name="segment-1.jsonl.zst")
    further = LegacyAgain.read([str(one) for one in others], FLOWS)
    question = Question(FLOWS, noise="joined" if again else "alone")
    with ThreadPoolExecutor(2) as threads:
        tally = compare_captures(
            str(captures), question, processes=processes, executor=threads, known=KnownParts()
        )
    found = further.noise(tally.noise, tally.control)
    assert found == noise_of(captures, *others)
    assert found.study.messages == (10 if again == 2 else 1)


def test_noise_that_is_not_asked_for_is_not_measured(tmp_path: Path) -> None:
    """It takes as long as comparing."""
    captures, _ = places(tmp_path, 3)
    assert compare_captures(str(captures), Question(FLOWS)).noise == NoiseTally()


def replayed(script: Script | None = None, number: int = 0) -> tuple[RunRecord, ...]:
    """Give an exchange, with legacy replayed as it is now."""
    serving, shadow = exchange(number=number)
    _, again = exchange(Script(), script, number=number)
    return serving, shadow, replace(again, role="replay", stack="legacy")


def test_messages_are_joined_over_places(tmp_path: Path) -> None:
    """By what was asked, whichever exchange it was."""
    found = noise_of(*_flat(places(tmp_path, 70)))
    assert (found.study.messages, found.study.left_out) == (70, {})
    text, tools, structure = found.study.judgements
    assert 0.3 < text.again < 0.9
    assert text.reading != "exceeds"
    assert (tools.reading, structure.reading) == ("within noise", "within noise")


def test_other_words_exceed_noise(tmp_path: Path) -> None:
    """A graph that speaks otherwise is farther from legacy than legacy is."""
    other = ("sunny", "cloudy", "windy", "warm")
    found = noise_of(*_flat(places(tmp_path, 30, other)))
    assert found.study.reading == "exceeds"
    assert found.study.judgements[0].reading == "exceeds"


def test_one_exchange_can_hold_all_runs(tmp_path: Path) -> None:
    """Two of legacy and one of graph, each with its own model calls."""
    runs = [
        live(answer(3, take), 3, stack, take)[0]
        for take, stack in enumerate(("legacy", "legacy", "graph"))
    ]
    captures = store(tmp_path, batch(tuple(runs)))
    assert noise_of(captures).study.messages == 1


def test_a_run_read_twice_counts_once(tmp_path: Path) -> None:
    """The same place given twice would make legacy equal to itself."""
    graph, legacy = places(tmp_path, 5, again=1)
    found = noise_of(graph, legacy[0], legacy[0])
    assert found.study.messages == 0
    assert found.study.left_out == {"legacy did not ask the model twice": 5}


def test_what_played_a_tape_is_no_noise(tmp_path: Path) -> None:
    """A shadow heard the model's answers to legacy."""
    captures = store(tmp_path, batch(exchange()))
    assert noise_of(captures, captures).study.left_out == {
        "graph was played the model's answers": 1
    }


def test_damage_is_counted_not_fatal(tmp_path: Path) -> None:
    """What can be read is."""
    graph, legacy = places(tmp_path, 3)
    store(legacy[0], b"no zstd at all", name="segment-1.jsonl.zst")
    found = noise_of(graph, *legacy)
    assert found.study.messages == 3
    assert found.study.left_out == {"line or batch damaged": 1}


def test_legacy_on_one_tape_is_exactly_zero_and_it_is_said(tmp_path: Path) -> None:
    """Every comparison looks, and the verdict says so."""
    place = store(tmp_path, batch(*(replayed(number=n) for n in range(4))))
    report = compared(place)
    assert report.control == ControlCheck(4, 0)
    assert "checked, exactly zero differences in 4 pairs" in markdown(report)
    assert "exactly zero" in page(report)
    assert noise_of(place).control == report.control


def test_legacy_that_differs_on_one_tape_is_named(tmp_path: Path) -> None:
    """The comparison itself is in doubt then."""
    place = store(tmp_path, batch(replayed(), replayed(Script(final="又"), number=1)))
    report = compared(place)
    assert report.control == ControlCheck(2, 1, ("x-00001",))
    assert "1 of 2 pairs differs, and none may" in control_text(report.control)


def test_two_legacy_runs_on_one_tape_are_enough_to_check() -> None:
    """And what was not checked does not hold."""
    serving, _, again = owning_tape(replayed())
    checker = ControlChecker(FLOWS)
    assert not checker.check.holds
    for _ in range(2):
        checker.add(Pair(serving.exchange, "chat", serving, again, serving.tape or ()))
    assert checker.check == ControlCheck(2, 0)


def test_what_cannot_be_repeated_is_not_checked() -> None:
    """Values taken out, runs the clock ended, takeovers."""
    serving, _, again = replayed()
    assert len(list(control_pairs((serving, again)))) == 1
    assert list(control_pairs((replace(serving, redacted=True), again))) == []
    assert list(control_pairs((replace(serving, outcome="timeout"), again))) == []
    assert list(control_pairs((serving, replace(again, role="fallback")))) == []
    twice = replace(serving, redacted=True), again, replace(again, began=1)
    assert len(list(control_pairs(twice))) == 1


def test_the_report_shows_noise_and_its_method(tmp_path: Path) -> None:
    """On the page and in Markdown; the label stays that of the pairs."""
    graph, legacy = places(tmp_path, 8)
    report = compared(graph, noise_of(graph, *legacy))
    assert "noise of live model calls, in 8 messages" in report.verdict.reasons[-1]
    for text in (page(report), markdown(report)):
        assert "cannot tell" in text
        assert "permutation test, Pitman 1937" in text


def compared(place: Path, noise: Noise | None = None) -> Report:
    """Compare a place and write it up."""
    tally = compare_captures(str(place), Question(FLOWS))
    return report_of(tally, str(place), "ignore", noise=noise)


def _flat(found: tuple[Path, list[Path]]) -> list[Path]:
    return [found[0], *found[1]]
