"""Prometheus' own tool, which evaluates the alerting rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it in a folder; without the program skip, and fail under CI."""
    program = shutil.which("promtool")
    if program is None:
        missing = "no promtool is installed (Debian's package prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and CI=true asks for it")
        pytest.skip(missing)
    return subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, timeout=60.0, check=False
    )
