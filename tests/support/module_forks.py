"""A process that runs modules in forks of itself, for copies of the project.

    python -m tests.support.module_forks MODULE…

It imports the modules, then reads a line of JSON a request: a command to run, to which it answers
the id of the process, or the id of one to wait for, to which it answers the exit status.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
import traceback
from importlib import import_module
from typing import NoReturn

import msgspec


class ForkRequest(msgspec.Struct, frozen=True):
    """A module with its arguments, what its environment has more, and the files it writes to."""

    command: list[str]
    environ: dict[str, str]
    out: str
    log: str


def main(*modules: str) -> None:
    """Answer requests until there are no more."""
    for module in modules:
        import_module(module)
    gc.freeze()  # no fork looks for garbage among what was imported
    for line in sys.stdin:
        asked = msgspec.json.decode(line, type=ForkRequest | int)
        if isinstance(asked, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1])
        else:
            answer = os.fork() or _run(asked)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _run(asked: ForkRequest) -> NoReturn:
    status = 1
    try:
        os.environ.update(asked.environ)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, path in ((1, asked.out), (2, asked.log)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = [*asked.command]
        runpy.run_module(asked.command[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
