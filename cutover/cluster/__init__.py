"""Where pieces of work are done beyond this machine: a Dask cluster of the team's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from compare.sharing import Workers
from cutover.own_modules import PACKAGES

LOCAL = "local"
"""Names a cluster that is started on this machine, for as long as it is used."""

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="A Dask scheduler whose workers do it, tcp://HOST:PORT, or `local`: a cluster on this "
        "machine.",
    ),
]


@dataclass(frozen=True, slots=True)
class Needs:
    """What results depend on, and must be the same here and in a worker.

    `code` are modules and packages, `packages` those that are installed, `prompts` folders by flow.
    """

    code: tuple[str, ...]
    packages: tuple[str, ...]
    prompts: tuple[tuple[str, Path], ...] = ()


COMPARING: Final = Needs(
    ("compare", "contract", "evidence"),
    ("dask", "distributed", "deepdiff", "msgspec", "numpy", "orjson", "zstandard"),
)
"""Of comparisons, and of what is measured while captures are read."""
RUNNING: Final = Needs(
    tuple(one for one in PACKAGES if one != "loadtests"),
    (*COMPARING.packages, "jinja2", "langchain-core", "langgraph", "pydantic", "regex"),
)
"""Of stacks that are run: their code, that of the rules, and what reads a tape to them."""


@contextmanager
def workers_at(
    scheduler: str | None, processes: int | None = None, needs: Needs = COMPARING
) -> Iterator[Workers]:
    """Yield the workers of a Dask scheduler, `tcp://HOST:PORT` or `local`; None: no cluster.

    `processes` are those of this machine: of a `local` cluster, and where there is none. Raises
    `MissingExtra`, `SchedulerUnreachable`, `OtherVersions`, and `ClusterLost` while it is used.
    """
    if scheduler is None:
        yield Workers(count=processes)
        return
    # Its library is an extra's, and takes half a second to import.
    library = import_module("cutover.cluster.dask")
    with library.cluster_workers(scheduler, processes, needs) as workers:
        yield workers
