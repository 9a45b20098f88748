"""Commands: arguments are characters, output is bounded, and nothing is left of a process tree."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.workers.command import CommandEnd, Tail, _pipe, plain, run_command
from tests.support.deployment import until
from tests.support.process_trees import python, running, tree

MOST = 1_000
ECHO = """
import os, sys
print(*sys.argv[1:], sep="\\n")
print("folder is", os.listdir() or "empty")
"""


async def run(
    command: tuple[str, ...], folder: Path, tell: Callable[[str], None] = lambda _: None
) -> CommandEnd:
    """Run a command in a folder, and tell each of its lines that is reported."""

    def report(line: str, _left_out: int = 0, /) -> None:
        if line:
            tell(line)

    return await run_command(
        command, folder=folder, environ={}, most=MOST, report=report, grace=0.05
    )


async def test_metacharacters_are_characters(tmp_path: Path) -> None:
    """No shell reads the arguments."""
    words = "; touch x", "$(touch x)", "`touch x`", "> x", "| cat", "*", "'", '"', "\\", "&& id"
    end = await run(python(ECHO, *words), tmp_path)
    assert end == CommandEnd(0, "\n".join(words) + "\nfolder is empty\n", 0)


async def test_a_command_gets_the_environment_it_is_given(tmp_path: Path) -> None:
    """No variable of this process (Python itself names its encoding)."""
    end = await run(python("import os; print(sorted(os.environ))"), tmp_path)
    assert end.output == "['LC_CTYPE']\n"


async def test_lines_are_reported_as_they_come_without_colours(tmp_path: Path) -> None:
    """Also those that end with a carriage return, and a last one that does not end."""
    lines: list[str] = []
    program = (
        r"print('\x1b[31mred\x1b[0m'); print('10 %\r20 %', end='\r\n\n'); print('last', end='')"
    )
    end = await run(python(program), tmp_path, lines.append)
    assert lines == ["red", "10 %", "20 %", "last"]
    assert end.output.startswith("red\n10 %")


async def test_what_a_pipe_holds_is_read_though_a_daemon_has_it_open() -> None:
    """However late the loop comes to it."""
    async with _pipe() as (output, writing):
        os.write(writing, b"held")
        output.close()
        assert await output.reader.read() == b"held"
        os.close(writing)


@pytest.mark.slow
async def test_an_output_of_100_mb_is_not_held_in_memory(tmp_path: Path) -> None:
    """Its last bytes are, and how many came before; one line has no end."""
    mb = 1 << 20
    program = (
        f"import sys; b = b'x' * {mb}\n"
        "for _ in range(100): sys.stdout.buffer.write(b)\n"
        "sys.stdout.buffer.write(b'end'); sys.exit(3)"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = await run(python(program), tmp_path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (end.status, len(end.output), end.output[-4:]) == (3, MOST, "xend")
    assert end.left_out == 100 * mb + 3 - MOST
    assert grown < 20 * 1024  # KiB


async def test_short_lines_are_counted_and_not_read_one_by_one(tmp_path: Path) -> None:
    """A program that writes without end does not keep the loop from its other tasks."""
    counted = reports = 0

    def report(line: str, left_out: int = 0, /) -> None:
        nonlocal counted, reports
        counted, reports = counted + left_out + bool(line), reports + 1

    program = python("import sys; sys.stdout.write('y\\n' * 1_000_000)")
    await run_command(program, folder=tmp_path, environ={}, most=MOST, report=report)
    assert counted == 1_000_000
    assert reports < 100_000


@given(st.lists(st.binary(max_size=30)), st.integers(min_value=1, max_value=40))
def test_a_tail_is_the_end_of_what_it_was_fed(pieces: list[bytes], most: int) -> None:
    """And counts the rest."""
    tail, whole = Tail(most), b"".join(pieces)
    for piece in pieces:
        tail.feed(piece)
    assert tail.bytes == whole[-most:]
    assert tail.left_out + len(tail.bytes) == len(whole)


@pytest.mark.parametrize("code", ["\x1b[1;31m", "\x1b[?25l", "\x1b]0;title\x07", "\x1bM"])
def test_terminal_codes_are_left_out(code: str) -> None:
    """Colours, cursors, titles and what else begins with an escape."""
    assert plain(f"a{code}b".encode()) == "ab"


@pytest.mark.slow
async def test_a_command_that_ignores_its_end_is_killed_with_all_it_started(
    tmp_path: Path,
) -> None:
    """Children in its group, and those in a session of their own, too."""
    pids = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(tree(), tmp_path, pids.set_result))
    line = await pids
    assert len(running(line)) == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(line) == []


@pytest.mark.slow
async def test_being_cancelled_again_does_not_leave_a_process(tmp_path: Path) -> None:
    """The caller may be in a hurry: the kill is waited for all the same."""
    pids = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(tree(), tmp_path, pids.set_result))
    line = await pids
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(line) == []


DAEMON = """
import os, signal, sys
if os.fork():
    signal.pause()
os.setsid()
if os.fork():
    os._exit(0)
os.dup2(os.open(os.devnull, os.O_RDWR), 2)
here = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"\\
       "print('tree', os.getpid(), flush=True); os.close(1); signal.pause()"
os.execve(sys.executable, [sys.executable, "-SEc", here], {})
"""
"""A daemon: of its own session, without a parent, environment or output, and deaf to SIGTERM."""


@pytest.mark.slow
async def test_a_daemon_does_not_get_away(tmp_path: Path) -> None:
    """Nothing it has leads back to its command but who its parents were."""
    pid = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(python(DAEMON), tmp_path, pid.set_result))
    line = await pid
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(line) == []


ROUTER = """
import asyncio, sys
from pathlib import Path
from effects.workers.command import run_command
def report(line, left_out=0, /):
    print(line, flush=True)
folder, *command = sys.argv[1:]
asyncio.run(
    run_command(command, folder=Path(folder), environ={}, most=1, report=report, grace=0.05)
)
"""


@pytest.mark.slow
async def test_a_command_does_not_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    """By SIGKILL, which leaves it no time to end anything."""
    router = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ROUTER, str(tmp_path), *tree()), stdout=asyncio.subprocess.PIPE
    )
    assert router.stdout is not None
    line = (await router.stdout.readline()).decode()
    processes = [psutil.Process(pid) for pid in running(line)]
    assert len(processes) == 3
    router.kill()
    await router.wait()
    _, left = await asyncio.to_thread(psutil.wait_procs, processes, 10)
    assert left == []


async def test_a_command_whose_supervisor_is_killed_has_been_killed(tmp_path: Path) -> None:
    """By its own command, even: the process group goes with it."""
    end = await run(python("import os; os.killpg(0, 9)"), tmp_path)
    assert end.status == -9


@pytest.mark.slow
async def test_what_stays_in_the_group_ends_with_the_command(tmp_path: Path) -> None:
    """It holds the output open, too; what has left the group for good is a daemon, and stays."""
    lines: list[str] = []
    end = await run(tree(then="sys.exit(0)"), tmp_path, lines.append)
    assert end.status == 0
    daemon = int(lines[0].split()[-1])
    await until(lambda: running(lines[0]) == [daemon])
    psutil.Process(daemon).kill()


async def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Of the operating system."""
    with pytest.raises(FileNotFoundError):
        await run(("no-such-program",), tmp_path)
