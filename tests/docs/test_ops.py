"""docs/ops.md names what workers can do."""

import re
from pathlib import Path

from contract.workers import WORKER_ACTIONS

PAGE = Path(__file__).parent.parent.parent / "docs" / "ops.md"


def test_the_page_names_every_action_with_its_arguments() -> None:
    """Each in the row of its action, and no other."""
    rows = [line.split("|")[1:3] for line in PAGE.read_text("utf-8").splitlines() if "| `" in line]
    named = {
        action: re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", arguments))
        for actions, arguments in rows
        for action in re.findall(r"`(\w+\.\w+)`", actions)
    }
    assert named == {
        ".".join(key): [one.name for one in action.arguments]
        for key, action in WORKER_ACTIONS.items()
    }
