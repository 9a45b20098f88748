"""`python -m tests.pictures`: take the picture of a report in docs/pictures anew, with chromium."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from harness.cli import cli
from tests.compare.captured import Capturing, captured, texts
from tests.support.browser import browsing
from tests.support.planting import drops

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "report.png"
QUESTIONS = ("What is 12 * 7?", "What is 6 * 4?", "What is 9 * 9?", "What is 25 * 3?")


async def serve(capturing: Capturing) -> None:
    """Serve 60 exchanges: graph says a wrong number in six, and hides a tool's status in three."""
    wrong = texts(lambda text: text.replace("is 84", "is 94").replace("is 75", "is 57"))
    hidden = drops("SEND")  # that its tool runs
    faults = {0: wrong, 7: wrong, 13: hidden}
    for number in range(60):
        await capturing.exchange(QUESTIONS[number % 4], faults.get(number % 20))


async def taken(report: Path) -> None:
    """Take a report's picture."""
    async with browsing() as (page, _):
        await page.set_viewport_size({"width": 1400, "height": 1130})
        await page.goto(report.as_uri())
        await page.screenshot(path=PICTURE)


def main() -> None:
    """Capture exchanges, compare them, and take the first screen of the report."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(captured(folder / "captures", serve))
        CliRunner().invoke(cli, ["diff", str(folder / "captures"), "-o", str(folder)])
        asyncio.run(taken(folder / "report.html"))


if __name__ == "__main__":
    main()
