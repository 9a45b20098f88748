"""Commands whose exit status is a verdict: what is wrong with their command line has its own."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import typer
from typer.core import TyperCommand

from cutover.errors import CutoverError

WRONG: Final = 64
"""The exit status for a command line or a file that cannot be meant: EX_USAGE of sysexits.h."""
FAULT: Final = 70
"""The exit status for a fault of the program's own, which is no verdict: EX_SOFTWARE."""
_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}


class Deciding(TyperCommand):
    """A command that ends with `WRONG` where others end with 2, and with `FAULT` instead of 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            error.exit_code = WRONG
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            error.exit_code = WRONG
            raise
        except (CutoverError, OSError, ImportError) as error:
            extra = "; install the extra, such as cutover[compare], load, dask or s3"
            more = extra if isinstance(error, ImportError) else ""
            typer.echo(f"cutover: {error}{more}", err=True)
            raise typer.Exit(WRONG) from error
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            traceback.print_exc()
            raise typer.Exit(FAULT) from error


def moment(text: str) -> int:
    """Return a moment in microseconds since 1970: `2h`, `3d` or `30m` ago, or ISO 8601, UTC.

    Raises `typer.BadParameter`.
    """
    if ago := re.fullmatch(r"(\d{1,6})([mhd])", text):
        return time.time_ns() // 1_000 - int(ago[1]) * _UNITS[ago[2]] * 1_000_000
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time: 2h, 3d, 2026-11-28 or 2026-11-28T10:30"
        raise typer.BadParameter(message) from error
    aware = read if read.tzinfo else read.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1e6)


def chosen(flows: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return the flows that are named, all where none is; raises `typer.BadParameter`."""
    for flow in flows:
        if flow not in known:
            message = f"no flow {flow!r}: there are {', '.join(known)}"
            raise typer.BadParameter(message)
    return flows or known
