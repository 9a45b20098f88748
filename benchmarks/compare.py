"""Exchanges for the bench: chats of 52 frames with tape and plays, no two of the same text."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import zstandard
from deepdiff import DeepDiff

from benchmarks.rows import BenchRow, at_least, at_most, told
from compare import Comparer, Pair, Question, compare_captures, pair_of
from compare.comparison import raw_equal
from contract import operations as ops
from contract.flows.chat import (
    CHAT,
    Accept,
    ChatEvent,
    End,
    Send,
    StartReply,
    Success,
    ToolFeedback,
    encode,
)
from contract.model import (
    AssistantMessage,
    Chunk,
    LookUp,
    Message,
    ModelCall,
    NoArguments,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from contract.operations import Operation
from contract.records import EntryRecord, PlayRecord, RequestRecord, RunRecord, encode_run
from contract.stores import Acquire, ClockReading, NewId, PutTurn, Release, Turn
from loadtests.runner import child_environment, module_command

BEGAN = 1_795_000_000_000_000
PIECES = 44
BATCH = 50
LATE_US = 3_000
_STEP_US = 40_000
_WORDS = ("今天", "北京", "天气", "晴朗", "river ", "bridge ", "clock ", "散步", "外套", "，", "。")
_TOOLS = (
    ToolCall("call_0_0", "get_weather", '{"city":"北京"}'),
    ToolCall("call_0_1", "get_weather", '{"city":"上海"}'),
)


@dataclass(frozen=True, slots=True)
class Talk:
    """What one stack asks and sends: a system prompt, and the reply in pieces."""

    system: str
    pieces: tuple[str, ...]
    tools: tuple[ToolCall, ...] = _TOOLS

    @property
    def text(self) -> str:
        """The whole reply."""
        return "".join(self.pieces)


def talk(number: int) -> Talk:
    """Give the talk of an exchange: drawn, and the same for the same number."""
    chance = random.Random(number)
    pieces = tuple("".join(chance.choices(_WORDS, k=6)) for _ in range(PIECES))
    return Talk("你是一个友好的助手。今天是 2026-11-21，请根据以下对话历史回答用户问题。", pieces)


def exchange(number: int, graph: Talk | None = None) -> tuple[RunRecord, RunRecord]:
    """Give one exchange: legacy served and recorded, graph played; differing where told."""
    legacy = talk(number)
    key = f"m-{number}"
    asked = _calls(legacy, key)
    tape = tuple(_entry(seq, *call) for seq, call in enumerate(asked))
    body = msgspec.Raw(msgspec.json.encode({"message_id": key, "content": "北京天气怎么样？"}))
    live = tuple(
        PlayRecord(port=e.port, op=e.op, site=e.site, how="live", at=e.at, entry=e.seq)
        for e in tape
    )
    first = _run(number, "legacy", frames(legacy), live)
    other = graph or legacy
    second = _run(number, "graph", frames(other, LATE_US), _plays(_calls(other, key), tape))
    request = RequestRecord(body, msgspec.Raw(b"{}"))
    return msgspec.structs.replace(first, tape=tape, request=request), second


def _run(
    number: int,
    stack: str,
    sent: tuple[tuple[int, str], ...],
    plays: tuple[PlayRecord, ...],
) -> RunRecord:
    return RunRecord(
        v=1,
        exchange=f"x-{number:07}",
        flow="chat",
        role="serving" if stack == "legacy" else "shadow",
        stack=stack,
        assigned="legacy",
        served="legacy",
        reason="percent",
        bucket=number % 100_000,
        config="2c16dec00668",
        code="92ae765e75b2",
        began=BEGAN + number * 1_000_000,
        frames=sent,
        outcome="completed",
        plays=plays,
    )


def frames(said: Talk, late_us: int = 0) -> tuple[tuple[int, str], ...]:
    """Put what a talk sends into stamped frames."""
    sent: list[ChatEvent] = [Accept(), StartReply()]
    for status in ("running", "done"):
        sent += [
            Send("", tool_call_feedback=ToolFeedback(call.name, status)) for call in said.tools
        ]
    text = ""
    for piece in said.pieces:
        text += piece
        sent.append(Send(text))
    sent += [Success(text), End()]
    return tuple(
        (late_us + 100_000 + k * _STEP_US, encode(event).decode()) for k, event in enumerate(sent)
    )


Call = tuple["Operation", str, msgspec.Struct, tuple[msgspec.Struct, ...]]


def _calls(said: Talk, key: str) -> list[Call]:
    lock = f"msg_lock:{key}"
    turn = Turn(message_id=key, role="user", content="北京天气怎么样？", user_name="小明")
    reply = Turn(message_id="r-1", role="assistant", content=said.text, reply_to=key)
    messages: tuple[Message, ...] = (
        SystemMessage(said.system),
        UserMessage("[小明]: 北京天气怎么样？"),
    )
    later = (
        *messages,
        AssistantMessage(None, said.tools),
        *(ToolMessage(call.id, "晴，21 度") for call in said.tools),
    )
    chunks = tuple(Chunk(text=piece) for piece in said.pieces)
    return [
        (ops.MODEL_LOOKUP, "model", LookUp("gpt-4.1"), ()),
        (ops.LOCK_ACQUIRE, "message", Acquire(lock, 60.0), ()),
        (ops.TURN_PUT, "message", PutTurn(turn), ()),
        (ops.CLOCK_NOW, "prompt", NoArguments(), (ClockReading(BEGAN),)),
        (ops.MODEL_STREAM, "reply", _model(messages), ()),
        *((ops.TOOLS_RUN, "tool", call, (ToolResult("晴，21 度"),)) for call in said.tools),
        (ops.MODEL_STREAM, "reply", _model(later), chunks),
        (ops.IDS_NEW, "reply", NoArguments(), (NewId("r-1"),)),
        (ops.TURN_PUT, "reply", PutTurn(reply), ()),
        (ops.LOCK_RELEASE, "message", Release(lock), ()),
    ]


def _model(messages: tuple[Message, ...]) -> ModelCall:
    return ModelCall(model_id="gpt-4.1", messages=messages, temperature=0.7)


def _entry(
    seq: int,
    operation: Operation,
    site: str,
    arguments: msgspec.Struct,
    items: tuple[msgspec.Struct, ...],
) -> EntryRecord:
    return EntryRecord(
        seq=seq,
        port=operation.port,
        op=operation.name,
        site=site,
        at=seq * 1_000,
        ended=seq * 1_000 + 500,
        end="complete",
        args=msgspec.Raw(_written(arguments)),
        items=tuple(msgspec.Raw(msgspec.json.encode(item)) for item in items),
    )


def _plays(asked: list[Call], tape: tuple[EntryRecord, ...]) -> tuple[PlayRecord, ...]:
    """Play calls in their order: what asks otherwise is answered by the entry in its place."""
    plays = []
    for entry, (operation, site, arguments, _) in zip(tape, asked, strict=True):
        written = _written(arguments)
        same = written == bytes(entry.args)
        plays.append(
            PlayRecord(
                port=operation.port,
                op=operation.name,
                site=site,
                how="exact" if same else "nearest",
                at=entry.at + LATE_US,
                entry=entry.seq,
                args=None if same else msgspec.Raw(written),
            )
        )
    return tuple(plays)


def _written(arguments: msgspec.Struct) -> bytes:
    return msgspec.json.encode(arguments, order="sorted")


def store(path: Path, exchanges: Iterable[tuple[RunRecord, RunRecord]]) -> None:
    """Write exchanges as a segment, `BATCH` to a batch."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for lines in _batches(exchanges):
            file.write(compressor.compress(lines))


def _batches(exchanges: Iterable[tuple[RunRecord, RunRecord]]) -> Iterator[bytes]:
    lines: list[bytes] = []
    for runs in exchanges:
        lines += [encode_run(run) for run in runs]
        if len(lines) >= 2 * BATCH:
            yield b"".join(lines)
            lines = []
    if lines:
        yield b"".join(lines)


IN_MEMORY = 200
STORED = 2_000
SHARED = 60_000
PER_FILE = 500
DEEP = 10
FLAT = "--flat"
QUESTION = Question({"chat": CHAT})
STREAMS = "chats of 52 frames with 11 calls, no two of the same text"
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
    """Give the most memory this process has had resident, by the kernel's account."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return int(found[1]) * 1024 if found else 0


def differing(number: int) -> Talk:
    """Give a graph stack's talk with one difference: prompt, tool, text or final text."""
    said = talk(number)
    match number % 4:
        case 0:
            return replace(said, system=said.system + "冷")
        case 1:
            first, second = said.tools
            return replace(said, tools=(msgspec.structs.replace(first, arguments="{}"), second))
        case 2:
            return replace(said, pieces=(*said.pieces[:20], "?", *said.pieces[21:]))
        case _:
            return replace(said, pieces=(*said.pieces[:-1], "!"))


def speed(folder: Path, rounds: int) -> list[BenchRow]:
    """Measure pairs per second of processor time, each over DeepDiff's in the same round."""
    equal = [_pair(exchange(number)) for number in range(IN_MEMORY)]
    apart = [_pair(exchange(number, differing(number))) for number in range(IN_MEMORY)]
    for name, others in (("equal", 0), ("apart", 1)):
        runs = (
            exchange(n, differing(n) if others else None) for n in range(STORED // (1 + others))
        )
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
    "raw_equal": "pairs in memory, frames and calls told equal without reading them",
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
        told(label, rate, "pairs/s", how)
        if target is None
        else at_least(label, rate, "pairs/s", target, how)
    )
    over = "over plain DeepDiff of the same parsed streams, whole, in the same round"
    return [row, told(f"{label}.over_deepdiff", ratio, "×", f"{over}; {how}")]


def scale(folder: Path, rounds: int, pairs: int) -> list[BenchRow]:
    """Measure peak memory over many pairs, and what a second process gives."""
    place = folder / "many" / "flow=chat" / "date=2026-11-21"
    for number in range(STORED // PER_FILE):
        some = range(number * PER_FILE, (number + 1) * PER_FILE)
        runs = (exchange(n, differing(n) if n % 50 == 0 else None) for n in some)
        store(place / f"{number:04}.jsonl.zst", runs)
    shared = _grown(place, min(pairs, SHARED))
    spent = [
        [_spent(str(folder / "many"), processes) for processes in (1, 2)]
        for _ in range(max(3, rounds // 3))
    ]
    _grown(place, pairs)
    compared, peak = _flat(folder / "many")
    many = f"{compared:,} pairs in segments of {PER_FILE}, one in 50 differing; {STREAMS}"
    one, two = zip(*spent, strict=True)
    gain = min(wall for wall, _ in one) / min(wall for wall, _ in two)
    cost = median(both.cpu / alone.cpu for alone, both in spent)
    rounds_said = f"{shared:,} pairs, {len(spent)} rounds of both"
    gained = (
        f"wall time of one process over two, starting them included, on {os.cpu_count()} cores, "
        f"the quickest of each: what else runs only slows; {rounds_said}"
    )
    cost_said = f"processor time of two processes over one, children included; {rounds_said}"
    return [
        at_most("compare.peak_memory", peak / 1e6, "MB", 300, f"VmHWM of one process; {many}"),
        at_least("compare.two_processes", gain, "×", 1.4, gained),
        told("compare.two_processes.processor_time", cost, "×", cost_said),
    ]


def _grown(place: Path, pairs: int) -> int:
    """Let the same segments stand under more names, until there are so many pairs."""
    files = sorted(place.iterdir())
    for number, path in zip(range(len(files), pairs // PER_FILE), cycle(files), strict=False):
        os.link(path, place / f"{number:04}.jsonl.zst")
    return max(pairs, len(files) * PER_FILE)


def _flat(place: Path) -> tuple[int, int]:
    """Compare in a process of its own; gives pairs and peak memory in bytes."""
    command = module_command("benchmarks.compare", FLAT, str(place))
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=child_environment())  # noqa: S603 (our own module)
    return msgspec.json.decode(said.stdout, type=tuple[int, int])


class _Spent(NamedTuple):
    """Seconds a comparison took: on the wall, and of processors, children's included."""

    wall: float
    cpu: float


def _spent(place: str, processes: int) -> _Spent:
    before = os.times()
    compare_captures(place, QUESTION, processes=processes)
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
        comparer.reader.begin()
        comparer.compare(pair)
    return len(pairs)


def _stored(place: Path) -> int:
    return compare_captures(str(place), QUESTION).different


def deep(pair: Pair) -> object:
    """Compare two whole streams as anybody would."""
    legacy, graph = (_parsed(run) for run in (pair.control, pair.candidate))
    return DeepDiff(legacy, graph)


def _parsed(run: RunRecord) -> list[object]:
    return [msgspec.json.decode(frame[6:-2]) for _, frame in run.frames]


if __name__ == "__main__":
    main()
