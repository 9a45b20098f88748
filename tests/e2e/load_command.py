"""`cutover load` as a process: it takes the signals of its own, as no thread of a test can."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from cutover.cli import main
from tests.support.patience import PATIENCE_S


def be_load(log: Path, arguments: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Be `cutover load` on a machine whose other work makes no run void, hardly warmed up."""
    runner: Any = import_module("loadtests.runner")
    report: Any = import_module("loadtests.report")
    command: Any = import_module("cutover.cli.compare.load")
    runner.WARM_UP_SECONDS = 0.25
    report.BUSIEST = report.MOST_BUSY_MACHINE = inf
    command.LoadPlan = partial(command.LoadPlan, lag=PATIENCE_S)
    os.environ.update(environ)
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(opened, descriptor)
    sys.argv = ["cutover", "load", *arguments]
    main()


async def run_load_command(log: Path, *arguments: object, **environ: str) -> int | None:
    """Run the command; returns its exit status. What it prints is in the file `log`."""
    words = tuple(map(str, arguments))
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=be_load, args=(log, words, environ))
    process.start()
    try:
        await asyncio.to_thread(process.join)
    finally:
        process.kill()
    return process.exitcode
