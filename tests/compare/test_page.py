"""The report in a browser: it fits, it says nothing to the console, and text in it does nothing."""

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compare.report.page import render
from compare.rollout import Scope, decide
from harness.cli import cli
from tests.compare.captured import captured, some_differ
from tests.compare.drawn import Drawn
from tests.loadtests.test_report import FIGURES, SLOWER, report, swept

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.sockets,
    pytest.mark.skipif(not CHROMIUM, reason="needs chromium"),
]

FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="%s" style="border:0;width:%dpx;height:2000px"></iframe>
<script>page.onload = () => {
  const seen = page.contentDocument, root = seen.documentElement;
  for (const one of seen.querySelectorAll("details")) one.open = true;
  const wide = [...seen.querySelectorAll("main *")].filter((one) =>
    !one.closest(".wide") && one.getBoundingClientRect().right > root.clientWidth + 0.5);
  document.title = JSON.stringify({
    over: root.scrollWidth - root.clientWidth, wide: wide.map((one) => one.outerHTML.slice(0, 99)),
    title: seen.title, scripts: seen.scripts.length, images: seen.images.length,
    shown: root.textContent.includes("owned"),
    paper: getComputedStyle(seen.body).backgroundColor,
  });
};</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write no log."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report on pairs, one of which has hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    asyncio.run(captured(folder / "captures", some_differ))
    CliRunner().invoke(cli, ["diff", str(folder / "captures"), "-o", str(folder)])
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The address at which the folder is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def look(
    url: str, folder: Path, width: int, flags: Sequence[str] = (), page: str = "report.html"
) -> tuple[Any, list[str]]:
    """Return what a browser sees of a page at a width, and what its console says."""
    (folder / "frame.html").write_text(FRAME % (page, width))
    line = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    line += ["--virtual-time-budget=5000", f"--window-size={max(width, 500)},2000", *flags]
    done = subprocess.run(
        [*line, "--dump-dom", f"{url}/frame.html"], capture_output=True, text=True, check=True
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    said = [one for one in done.stderr.splitlines() if "CONSOLE" in one]
    return json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">")), said


@pytest.mark.parametrize("width", [390, 1400])
def test_a_report_fits_and_hostile_text_is_inert(url: str, folder: Path, width: int) -> None:
    """Nothing stands beyond the right edge, with all that is folded open."""
    seen, said = look(url, folder, width)
    assert (seen["over"], seen["wide"], said) == (0, [], [])
    assert (seen["title"], seen["scripts"], seen["images"]) == ("Different · cutover diff", 0, 0)
    assert seen["shown"]


@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_of_the_gate_fits_and_hostile_text_is_inert(
    url: str, folder: Path, width: int
) -> None:
    """Also a long name, and what a stack calls its failure."""
    rows = Drawn(behind=0.5).frame(code="<script>owned()</script>", unit_kind="user" * 40)
    decision = decide(rows, Scope("chat", 0.5, "now", int(rows["at"].max())))
    (folder / "gate.html").write_text(render("gate.html.j2", decision=decision))
    seen, said = look(url, folder, width, page="gate.html")
    assert (seen["over"], seen["wide"], said) == (0, [], [])
    assert (seen["title"], seen["scripts"]) == ("Roll back · cutover gate", 0)
    assert seen["shown"]


@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_of_a_load_fits(url: str, folder: Path, width: int) -> None:
    """With its chart, in which a stack leaves the bound, or its column of ratios."""
    shown = {"sweep.html.j2": swept(FIGURES["sweeps"][5]), "load.html.j2": report(SLOWER)}
    for template, found in shown.items():
        (folder / "load.html").write_text(render(template, report=found))
        seen, said = look(url, folder, width, page="load.html")
        assert (seen["over"], seen["wide"], said, seen["scripts"]) == (0, [], [], 0)


def test_a_report_is_dark_where_that_is_preferred(url: str, folder: Path) -> None:
    """By the reader's settings."""
    light, _ = look(url, folder, 1400)
    dark, _ = look(url, folder, 1400, ["--blink-settings=preferredColorScheme=0"])
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
