"""Programs of this machine that tests run: without one a test is skipped, and fails under CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(name: str, package: str) -> str:
    """Return the path of a program of a Debian package; without it skip, and fail under CI."""
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing = f"no {name} is installed (Debian's package {package})"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and CI=true asks for it")
        pytest.skip(missing)
    return program


def promtool(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Prometheus' tool in a folder."""
    return output_of(installed("promtool", "prometheus"), *words, folder=folder)


def output_of(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; returns its status and what it wrote."""
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60.0, check=False
    )
