"""The page that puts cutover in front of two services, typed into a shell from its first line."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.terminal import terminal
from tests.docs.transcripts import Typed, blocks, fenced, pattern, typed
from tests.support.ports import own_port

PAGE = ROOT / "docs" / "remote.md"
REFERENCE = "The rest of this page is reference."
ROUTER = "8080"
PORTS = (ROUTER, "8090", "9001", "9002")
MOST_COMMANDS = 6
EXAMPLES = ("openai_service", "langgraph_service")


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.untraced
async def test_the_page_leads_from_two_services_to_a_takeover(tmp_path: Path) -> None:
    """Each command answers as shown, on ports that are the test's own."""
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    with ExitStack() as held:
        ports = {port: str(held.enter_context(own_port())) for port in PORTS}

        server = f"\n[server]\nport = {ports[ROUTER]}\n"

        def moved(text: str) -> str:
            return re.sub("|".join(PORTS), lambda hit: ports[hit[0]], text)

        for name in EXAMPLES:
            shutil.copytree(ROOT / "examples" / name, home / "cutover" / "examples" / name)
            diff = home / "cutover" / "examples" / name / "gateway.diff"
            diff.write_text(moved(diff.read_text("utf-8")), "utf-8")
        page, reference, _ = PAGE.read_text("utf-8").partition(REFERENCE)
        assert reference
        async with terminal(folder, home, int(ports[ROUTER])) as shell:
            for language, block in fenced(moved(page)):
                if language == "toml":
                    own = f"{block}\n[server]\nport = {ports[ROUTER]}\n"
                    (folder / "cutover.toml").write_text(own, "utf-8")
                if language == "console":
                    for one in typed(block):
                        came = await shell.type(one)
                        fits = not one.shown or pattern(one.shown).fullmatch(came)
                        assert fits, f"{one.command}\n{came}"
                        if one.command.startswith("cutover init"):
                            with (folder / "cutover.toml").open("a", encoding="utf-8") as file:
                                file.write(server)


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.untraced
async def test_init_leads_to_a_report_in_few_commands(tmp_path: Path) -> None:
    """Of two unchanged services: a served request, a mirrored pair, a report."""
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, home / "cutover" / "examples" / name)
    with ExitStack() as held:
        ports = {port: str(held.enter_context(own_port())) for port in PORTS}

        def commands(heading: str) -> list[Typed]:
            """Return what is typed below a heading, on ports of the test's own."""
            text = "".join(blocks(PAGE, heading, "console"))
            moved = re.sub("|".join(PORTS), lambda hit: ports[hit[0]], text)
            return list(typed(moved))

        steps = commands("`cutover init`")
        async with terminal(folder, home, int(ports[ROUTER])) as shell:
            for one in (*commands("The services as they are"), *steps):
                if one.command.startswith("cutover serve"):
                    with (folder / "cutover.toml").open("a", encoding="utf-8") as file:
                        file.write(f"\n[server]\nport = {ports[ROUTER]}\n")
                came = await shell.type(one)
                fits = not one.shown or pattern(one.shown).fullmatch(came)
                assert fits, f"{one.command}\n{came}"
    assert len(steps) <= MOST_COMMANDS


def test_the_page_shows_the_diff_as_it_is() -> None:
    """Line by line."""
    (shown,) = [block for language, block in fenced(PAGE.read_text("utf-8")) if language == "diff"]
    diff = (ROOT / "examples" / "langgraph_service" / "gateway.diff").read_text("utf-8")
    plain = "".join(line.rstrip() + "\n" for line in diff.splitlines())
    plain = re.sub(r"@@.*@@.*\n", "\n", plain)
    assert shown in plain
