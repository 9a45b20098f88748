"""docs/tools.md: its module is written, listed by the doctor, and called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contract.flows import SPECS
from contract.model import ToolCall
from cutover.doctor import PartCheck, examine
from effects.tools import ToolRegistry, python_tools
from router.config.loader import parse_settings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "tools.md").read_text("utf-8")
STORES = '[stores]\nconversations = "memory://"\nmemory = "memory://"\npauses = "memory://"\n'


@pytest.mark.untraced
async def test_the_module_of_the_page_works(module_folder: Path) -> None:
    """With the page's configuration; the doctor says what the page shows."""
    (example,) = re.findall(r"```python\n# app/tools.py\n(.*?)```", PAGE, re.DOTALL)
    toml = next(iter(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))
    (module_folder / "app").mkdir()
    (module_folder / "app" / "tools.py").write_text(example, "utf-8")
    settings = parse_settings(STORES + toml, "cutover.toml", SPECS)
    (part,) = [one for one in await examine(settings, {}) if one.part == "tools.python"]
    (shown,) = re.findall(r"good    tools\.python: (.*)\n", PAGE)
    assert part == PartCheck("tools.python", ok=True, detail=shown)
    tools = ToolRegistry(python_tools(settings.tools.python.modules)).for_user("ann")
    results = [
        await tools.run("tools", ToolCall("c", name, f'{{"order_id":"{order}"}}'))
        for name, order in (
            ("order_status", "A-18"),
            ("order_status", "B-1"),
            ("cancel_order", "A-17"),
        )
    ]
    assert [one.error or one.content for one in results] == [
        '{"order":"A-18","status":"on its way"}',
        "bad_arguments",
        "A-17 is cancelled for ann",
    ]
    await tools.aclose()
