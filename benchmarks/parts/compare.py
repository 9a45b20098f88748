"""How fast captures are compared; prints figures as JSON.

python -m benchmarks.parts.compare ROUNDS PAIRS
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from deepdiff import DeepDiff
from zstandard import ZstdCompressor, ZstdDecompressor

from benchmarks.rows import BenchRow, at_least, at_most, reported
from compare.captures import Question, compare_captures
from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.equality import raw_equal
from contract.flows.chat import CHAT
from contract.records import RunRecord
from cutover.cluster import LOCAL, workers_at
from cutover.selftest.exchanges import Script, batch, exchange, tool
from loadtests.processes import child_environment, module_command

PIECES = 44
BATCH = 50
_WORDS = ("今天", "北京", "天气", "晴朗", "river ", "bridge ", "clock ", "散步", "外套", "，", "。")


def script(number: int) -> Script:
    """Return what a stack does in an exchange: drawn, and the same for the same number."""
    chance = random.Random(number)
    pieces = tuple("".join(chance.choices(_WORDS, k=6)) for _ in range(PIECES))
    return Script(pieces=pieces, tools=(tool(0), tool(1, '{"city":"上海"}')))


def runs_of(number: int, graph: Script | None = None) -> tuple[RunRecord, RunRecord]:
    """Return the two runs of an exchange: legacy served, graph played, from `graph` if given."""
    return exchange(script(number), graph, number=number)


def store(path: Path, exchanges: Iterable[tuple[RunRecord, RunRecord]]) -> None:
    """Write exchanges as a segment, `BATCH` to a batch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = list(exchanges)
    batches = (batch(*runs[start : start + BATCH]) for start in range(0, len(runs), BATCH))
    path.write_bytes(b"".join(batches))


IN_MEMORY = 200
STORED = 2_000
SHARED = 20_000
PER_FILE = 500
DEEP = 10
FLAT = "--flat"
QUESTION = Question({"chat": CHAT})
STREAMS = "chats of 52 frames with 11 calls, no two of the same text"
DASK = (
    "wall time on a Dask cluster of two workers, which was there, over that of two processes, "
    "starting them included, the quickest of each"
)
TARGETS = {"raw_equal": 20_000, "segments": 4_000, "differing": 2_000}


def main() -> None:
    """Measure and print; with `--flat PLACE`, only compare it and print the peak memory."""
    if sys.argv[1] == FLAT:
        pairs = compare_captures(sys.argv[2], QUESTION).pairs
        sys.stdout.buffer.write(msgspec.json.encode((pairs, peak_bytes())))
        return
    rounds, pairs = map(int, sys.argv[1:])
    with TemporaryDirectory() as folder:
        rows = [*speed(Path(folder), rounds), *scale(Path(folder), rounds, pairs)]
    sys.stdout.buffer.write(msgspec.json.encode(rows))


def peak_bytes() -> int:
    """Return the peak resident memory of this process, in bytes, as the kernel counts it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return int(found[1]) * 1024 if found else 0


def differing(number: int) -> Script:
    """Return a graph stack's script with one difference: prompt, tool, text or final text."""
    same = script(number)
    match number % 4:
        case 0:
            return same.but(system=same.system + "冷")
        case 1:
            return same.but(tools=(tool(0, "{}"), same.tools[1]))
        case 2:
            return same.but(pieces=(*same.pieces[:20], "?", *same.pieces[21:]))
        case _:
            return same.but(pieces=(*same.pieces[:-1], "!"))


def speed(folder: Path, rounds: int) -> list[BenchRow]:
    """Measure pairs per second of processor time, each over DeepDiff's in the same round."""
    equal = [_pair(runs_of(number)) for number in range(IN_MEMORY)]
    apart = [_pair(runs_of(number, differing(number))) for number in range(IN_MEMORY)]
    for name, others in (("equal", 0), ("apart", 1)):
        runs = (runs_of(n, differing(n) if others else None) for n in range(STORED // (1 + others)))
        store(folder / name / "flow=chat/date=2026-11-21/s.jsonl.zst", runs)
    measured: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        deep_equal = _rate(lambda: _each(deep, equal[:DEEP]))
        deep_apart = _rate(lambda: _each(deep, apart[:DEEP]))
        for name, work, base in (
            ("raw_equal", lambda: _each(raw_equal, equal), deep_equal),
            ("equal_with_grammar", lambda: _compared(equal), deep_equal),
            (
                "segments",
                lambda: compare_captures(str(folder / "equal"), QUESTION).pairs,
                deep_equal,
            ),
            ("differing", lambda: _compared(apart), deep_apart),
            ("segments_differing", lambda: _stored(folder / "apart"), deep_apart),
        ):
            rate = _rate(work)
            measured.setdefault(name, []).append((rate, rate / base))
    return [row for name, values in measured.items() for row in _rows(name, values)]


HOW = {
    "raw_equal": "pairs in memory, frames and calls compared as bytes",
    "equal_with_grammar": "pairs in memory, with their grammar",
    "segments": "from zstd segments on disk, with grammar, effects and times",
    "differing": "pairs in memory with one difference each in prompt, tool or text",
    "segments_differing": "as differing, from zstd segments on disk, with clusters and exemplars",
}


def _rows(name: str, values: Sequence[tuple[float, float]]) -> list[BenchRow]:
    how = f"{HOW[name]}; {STREAMS}; processor time of one process, median of {len(values)} rounds"
    rate, ratio = (median(column) for column in zip(*values, strict=True))
    target = TARGETS.get(name)
    label = f"compare.{name}"
    row = (
        reported(label, rate, "pairs/s", how)
        if target is None
        else at_least(label, rate, "pairs/s", target, how)
    )
    over = "over plain DeepDiff of the same parsed streams, whole, in the same round"
    return [row, reported(f"{label}.over_deepdiff", ratio, "×", f"{over}; {how}")]


def scale(folder: Path, rounds: int, pairs: int) -> list[BenchRow]:
    """Measure peak memory over many pairs, and what a second process gives."""
    place = folder / "many" / "flow=chat" / "date=2026-11-21"
    for number in range(STORED // PER_FILE):
        some = range(number * PER_FILE, (number + 1) * PER_FILE)
        runs = (runs_of(n, differing(n) if n % 50 == 0 else None) for n in some)
        store(place / f"{number:04}.jsonl.zst", runs)
    shared = copy_segments(place, min(pairs, SHARED))
    spent = [
        [_spent(str(folder / "many"), processes) for processes in (1, 2)]
        for _ in range(max(3, rounds // 3))
    ]
    dask = _dask_over_processes(str(folder / "many"), max(3, rounds // 3))
    copy_segments(place, pairs)
    compared, peak = _flat(folder / "many")
    many = f"{compared:,} pairs in segments of {PER_FILE}, one in 50 differing; {STREAMS}"
    one, two = zip(*spent, strict=True)
    gain = min(wall for wall, _ in one) / min(wall for wall, _ in two)
    cost = median(both.cpu / alone.cpu for alone, both in spent)
    rounds_method = f"{shared:,} pairs, {len(spent)} rounds of both"
    gain_method = (
        f"wall time of one process over two, starting them included, on {os.cpu_count()} cores, "
        f"the quickest of each: what else runs only slows; {rounds_method}"
    )
    cost_method = f"processor time of two processes over one, children included; {rounds_method}"
    return [
        at_most("compare.peak_memory", peak / 1e6, "MB", 300, f"VmHWM of one process; {many}"),
        at_least("compare.two_processes", gain, "×", 1.4, gain_method),
        reported("compare.two_processes.processor_time", cost, "×", cost_method),
        at_most("compare.dask_over_processes", dask, "×", 1.15, f"{DASK}; {rounds_method}"),
    ]


def _dask_over_processes(place: str, rounds: int) -> float:
    """Return the wall time on a Dask cluster of two workers over that of two processes."""
    with workers_at(LOCAL, 2) as workers:
        _spent(place, 2, workers.executor)  # its workers import what they need
        spent = [
            (_spent(place, 2).wall, _spent(place, 2, workers.executor).wall) for _ in range(rounds)
        ]
    return min(cluster for _, cluster in spent) / min(processes for processes, _ in spent)


def copy_segments(place: Path, pairs: int) -> int:
    """Copy the first segments until there are so many pairs, each with an id of its own.

    Returns their number. What is read twice counts once, and is compared where tallies are merged.
    """
    there = sorted(place.iterdir())
    packer = ZstdCompressor(level=1, write_checksum=True)
    for number, path in zip(range(len(there), pairs // PER_FILE), cycle(there), strict=False):
        with ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True) as file:
            lines = file.read().splitlines(keepends=True)
        own = b'"exchange":"%d-' % number
        batches = (b"".join(lines[at : at + 2 * BATCH]) for at in range(0, len(lines), 2 * BATCH))
        (place / f"{number:04}.jsonl.zst").write_bytes(
            b"".join(packer.compress(one.replace(b'"exchange":"', own)) for one in batches)
        )
    return max(pairs, len(there) * PER_FILE)


def _flat(place: Path) -> tuple[int, int]:
    """Compare in a separate process; return pairs and peak memory in bytes."""
    command = module_command("benchmarks.parts.compare", FLAT, str(place))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=child_environment())  # noqa: S603 (our own module)
    return msgspec.json.decode(done.stdout, type=tuple[int, int])


class _Spent(NamedTuple):
    """Seconds a comparison took: on the wall, and of processors, children's included."""

    wall: float
    cpu: float


def _spent(place: str, processes: int, executor: Executor | None = None) -> _Spent:
    before = os.times()
    compare_captures(place, QUESTION, processes=processes, executor=executor)
    after = os.times()
    return _Spent(after.elapsed - before.elapsed, sum(after[:4]) - sum(before[:4]))


def _rate(work: Callable[[], int]) -> float:
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def _pair(runs: tuple[RunRecord, RunRecord]) -> Pair:
    pair = pair_of(runs)
    if not isinstance(pair, Pair):
        raise TypeError(pair)
    return pair


def _each(work: Callable[[Pair], object], pairs: Sequence[Pair]) -> int:
    for pair in pairs:
        work(pair)
    return len(pairs)


def _compared(pairs: Sequence[Pair]) -> int:
    comparer = Comparer(CHAT)
    for pair in pairs:
        comparer.compare(pair)
    return len(pairs)


def _stored(place: Path) -> int:
    return compare_captures(str(place), QUESTION).different


def deep(pair: Pair) -> object:
    """Compare two whole streams with DeepDiff alone."""
    legacy, graph = (_parsed(run) for run in (pair.control, pair.candidate))
    return DeepDiff(legacy, graph)


def _parsed(run: RunRecord) -> list[object]:
    return [msgspec.json.decode(frame[6:-2]) for _, frame in run.frames]


if __name__ == "__main__":
    main()
