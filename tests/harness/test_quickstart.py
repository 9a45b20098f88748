"""The quickstart's commands, typed one after the other, where only the wheel is installed."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtests.simulator import Simulator
from tests.support.processes import ROOT, Program, free_port

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

PAGE = (ROOT / "docs" / "quickstart.md").read_text("utf-8")
STATUS = {"cutover gate": 3}
"""A handful of requests decides nothing."""
SECONDS = 60.0
Type = Callable[[str], Awaitable[tuple[int, str]]]


def typed() -> Iterator[str]:
    """Yield the commands of the page, in order."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        yield from re.findall(r"^\$ (.*)", block, re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, and return the folder that it is installed in."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *alone, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("cutover-*.whl")
    subprocess.run([*pip, "install", *alone, "--target", folder / "site", wheel], check=True)
    return folder / "site"


@asynccontextmanager
async def shell(home: Path, site: Path, ports: Mapping[str, str]) -> AsyncIterator[Type]:
    """Open a shell whose `cutover` is the installed one; yield what types a command into it."""
    program = home / "bin" / "cutover"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {site}/bin/cutover "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    bash = await asyncio.create_subprocess_exec(
        *("bash", "-m"),
        cwd=home,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(site)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert bash.stdin is not None
    assert bash.stdout is not None

    async def run(command: str) -> tuple[int, str]:
        for port, free in ports.items():
            command = command.replace(port, free)
        bash.stdin.write(f"{command}\nprintf '\\nEND %s\\n' $?\n".encode())  # type: ignore[union-attr]
        lines = list[str]()
        while not lines or not lines[-1].startswith("END "):
            line = await asyncio.wait_for(bash.stdout.readline(), SECONDS)  # type: ignore[union-attr]
            assert line, lines
            lines.append(line.decode())
        return int(lines[-1].split()[1]), "".join(lines)

    try:
        yield run
    finally:
        await run("kill $(jobs -p); wait")
        bash.stdin.close()
        await asyncio.wait_for(bash.wait(), SECONDS)


async def test_each_command_of_the_quickstart_works(installed: Path, tmp_path: Path) -> None:
    """Two services that cut their streams otherwise are put behind the router, and compared."""
    program = [sys.executable, "-m", "uvicorn", "--port", "PORT", "tests.strangers.completions:app"]

    def service(url: str, pieces: str) -> Program:
        return Program(tmp_path, command=program, environment={"MODEL_URL": url, "PIECES": pieces})

    async with (
        Simulator(chunk_ms=5) as model,
        service(model.base_url, "1") as old,
        service(model.base_url, "3") as new,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{(port := free_port())}") as router,
        shell(
            tmp_path / "home",
            installed,
            {"9001": str(old.port), "9002": str(new.port), "8080": str(port)},
        ) as run,
    ):

        async def until(holds: Callable[[dict[str, Any]], bool]) -> None:
            async with asyncio.timeout(SECONDS):
                while True:
                    with suppress(httpx.TransportError):
                        if holds((await router.get("/cutover/status")).json()):
                            return
                    await asyncio.sleep(0.05)  # a process of its own has no clock to move

        printed = dict[str, str]()
        for command in typed():
            if "status" in command:
                await until(lambda one: one["captures"]["written"] > 1)
            status, text = await run(command)
            name = " ".join(re.findall(r"cutover [a-z]+|curl", command))
            printed[name] = text
            assert status == STATUS.get(name, 0), (command, text)
            if name == "cutover init":
                file = tmp_path / "home" / "cutover.toml"
                file.write_text(file.read_text().replace("port = 8080", f"port = {port}"))
            elif name == "cutover serve":
                await until(bool)
        where = 'python -c "import harness; print(harness.__file__)"'
        assert (await run(f"PATH={Path(sys.executable).parent}:$PATH {where}"))[1].startswith(
            str(installed)
        )
        assert printed["cutover init"].count("whole:") == 2
        assert '"equal":' in printed["curl"]
        assert "equal" in printed["cutover diff"]
        assert (tmp_path / "home" / "report" / "report.html").exists()
