"""The page that puts cutover in front of two services, typed into a shell from its first line."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtests.processes import own_port
from tests.conftest import ROOT
from tests.docs.terminal import terminal
from tests.docs.transcripts import blocks, fenced, pattern, typed

PAGE = ROOT / "docs" / "remote.md"
REFERENCE = "The rest of this page is reference."
ROUTER = "8080"
PORTS = (ROUTER, "8081", "8090", "9001", "9002", "9100")
MOST_COMMANDS = 9
"""From the services as they are to a report of what one does otherwise."""
EXAMPLES = ("openai_service", "langgraph_service", "shop_server")
WHOLE = "[stacks.legacy]"
"""A configuration that begins so takes the place of the one there is; any other is added to it."""


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.untraced
async def test_the_page_leads_from_two_services_to_a_replay_of_changed_code(tmp_path: Path) -> None:
    """Each command answers as shown, on ports that are the test's own."""
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    config = folder / "cutover.toml"
    with ExitStack() as held:
        ports = {port: str(held.enter_context(own_port())) for port in PORTS}
        server = f"\n[server]\nport = {ports[ROUTER]}\n"

        def moved(text: str) -> str:
            return re.sub("|".join(PORTS), lambda hit: ports[hit[0]], text)

        for name in EXAMPLES:
            copied = home / "cutover" / "examples" / name
            shutil.copytree(ROOT / "examples" / name, copied)
            for path in copied.glob("*.*"):
                path.write_text(moved(path.read_text("utf-8")), "utf-8")
        page, reference, _ = PAGE.read_text("utf-8").partition(REFERENCE)
        assert reference
        async with terminal(folder, home) as shell:
            for language, block in fenced(moved(page)):
                if language == "toml":
                    written = config.read_text("utf-8").replace(server, "")
                    if block.startswith(WHOLE):
                        assert settings_in(block) == settings_in(written), "the rest is as it was"
                        written = ""
                    config.write_text(f"{written}\n{block}{server}", "utf-8")
                if language == "console":
                    for one in typed(block):
                        came = await shell.type(one)
                        fits = not one.shown or pattern(one.shown).fullmatch(came)
                        assert fits, f"{one.command}\n{came}"
                        if one.command.startswith("cutover init"):
                            with config.open("a", encoding="utf-8") as file:
                                file.write(server)


def settings_in(text: str) -> list[str]:
    """Return the lines of a configuration, without comments and those marked as new."""
    return [
        line.partition("  #")[0].rstrip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("#") and "# new" not in line
    ]


def test_init_leads_to_a_report_of_a_real_difference_in_few_commands() -> None:
    """Of two services: a mirrored pair, then one answer of the model for both, and a report."""
    found = [
        one.command
        for heading in ("Mirror", "One model call for both")
        for block in blocks(PAGE, heading, "console")
        for one in typed(block)
    ]
    assert found[0].startswith("cutover init")
    assert found[-1].endswith("cutover diff captures -o report")
    assert len(found) <= MOST_COMMANDS


def test_the_page_shows_the_diff_as_it_is() -> None:
    """Line by line."""
    (shown,) = [block for language, block in fenced(PAGE.read_text("utf-8")) if language == "diff"]
    diff = (ROOT / "examples" / "langgraph_service" / "gateway.diff").read_text("utf-8")
    assert shown == "".join(f"{line.rstrip()}\n" for line in diff.splitlines())
