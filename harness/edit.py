"""Edits of the configuration file: comments stay, and what would be refused is not written."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError
from tomlkit.exceptions import TOMLKitError

from harness.config import ConfigRefused, FlowTable, decode, read, sentence

SWITCHES = (
    *("enable_langgraph", "langgraph_percent", "langgraph_fallback", "shadow_percent"),
    *("force_legacy", "force_graph"),
)
"""Keys of a flow that may be changed while it is served."""


def edit(path: Path, changes: Mapping[str, Mapping[str, Any]], *, dry_run: bool = False) -> bytes:
    """Change switches of flows, by flow and key, in one step; return the file's new content.

    Who reads the file sees the old content or the new one; edits of several processes follow one
    another. Raises `ConfigRefused`, and then the file is as it was, as it is after a dry run.
    """
    path = path.resolve()  # a link stays one
    try:
        with _alone(path.parent):
            content = _edited(read(path), changes, path)
            decode(content, path)
            if dry_run:
                tempfile.TemporaryFile(dir=path.parent).close()  # raises as a new file would
            else:
                _replace(path, content)
    except OSError as error:
        raise ConfigRefused(path, [f"not written: {error.strerror or error}"]) from error
    return content


def _edited(content: bytes, changes: Mapping[str, Mapping[str, Any]], path: Path) -> bytes:
    try:
        document = tomlkit.parse(content.decode())
        flows = document.get("flows", {})
        for flow, switches in changes.items():
            if flow not in flows:
                problem = f"flows.{flow}: not in this file, which names the flows that are served"
                raise ConfigRefused(path, [problem])
            if unknown := switches.keys() - set(SWITCHES):
                known = ", ".join(SWITCHES)
                raise ConfigRefused(path, [f"{min(unknown)}: no switch; there are {known}"])
            table = FlowTable.model_validate(dict(switches), strict=True)
            flows[flow].update(table.model_dump(include=set(switches)))
        return tomlkit.dumps(document).encode()
    except ValidationError as error:
        raise ConfigRefused(path, [sentence(one) for one in error.errors()]) from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigRefused(path, [str(error)]) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: the file itself is replaced, and a lock on it would be lost."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _replace(path: Path, content: bytes) -> None:
    """Put a new file in the place of one, with its mode, once its bytes are on the disk."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        new = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            new.chmod(path.stat().st_mode)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
