"""Processes of its own for whatever must not share one: Locust patches its process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def module_command(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module in this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def child_environment(**more: str) -> dict[str, str]:
    """Environment in which a child finds this project, installed or not."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}
