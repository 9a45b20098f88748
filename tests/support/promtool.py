"""Prometheus' own programs: the server, and the tool that evaluates the alerting rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(name: str) -> str:
    """Return the path of a program of Debian's package; without it skip, and fail under CI."""
    program = shutil.which(name)
    if program is None:
        missing = f"no {name} is installed (Debian's package prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and CI=true asks for it")
        pytest.skip(missing)
    return program


def promtool(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it in a folder."""
    whole = [installed("promtool"), *words]
    return subprocess.run(
        whole, cwd=folder, capture_output=True, text=True, timeout=60.0, check=False
    )
