"""The first page, and the recipe for the QA header: what is shown there works."""

from __future__ import annotations

import hmac
import re
from pathlib import Path

from benchmarks.__main__ import BENCHES
from contract.flows import SPECS
from contract.qa_header import sign
from cutover.cli import COMMANDS
from router.config.loader import parse_settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_configuration_shown_is_one() -> None:
    """And it splits users, as its comment says: not messages, which would split conversations."""
    (shown,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    chat = parse_settings(shown, "README.md", SPECS).flows["chat"]
    assert (chat.route_key, float(chat.langgraph_percent)) == ("user_id", 10)


def test_every_command_and_every_page_is_named() -> None:
    """A page without a link is not found."""
    assert [name for name in COMMANDS if f"| `cutover {name}" not in README] == []
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in pages if f"](docs/{name})" not in README] == []


def test_every_figure_has_a_bench() -> None:
    """The commands that show the figures of the pages exist."""
    pages = [README, *(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))]
    named = {name for page in pages for name in re.findall(r"python -m benchmarks (\w+)", page)}
    assert named <= set(BENCHES)
    assert {"takeover", "remote"} <= named


def test_the_recipe_for_the_qa_header_signs_as_the_router_does() -> None:
    """What is signed, in which order, and what the header looks like."""
    page = (ROOT / "docs" / "rollout.md").read_text("utf-8")
    (signed,) = re.findall(r"printf '(.*?)' \$until", page)
    (header,) = re.findall(r'"x-cutover-qa: (.*?)"', page)
    moment = 1_790_000_000
    digest = hmac.new(b"key", signed.replace("%s", str(moment)).encode(), "sha256").hexdigest()
    made = header.replace("$until", str(moment)).replace("$sig", digest)
    assert made == sign("graph", moment, "m1", b"key")
