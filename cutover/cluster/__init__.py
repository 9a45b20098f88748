"""Where pieces of work are done beyond this machine: a Dask cluster of the team's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import Annotated, Final

import typer

from compare.sharing import Workers
from cutover.own_modules import PACKAGES
from cutover.wiring.stacks import fingerprint

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
    ("compare", "contract", "effects.places", "evidence"),
    ("dask", "distributed", "deepdiff", "msgspec", "numpy", "orjson", "zstandard"),
)
"""Of comparisons, and of what is measured while captures are read."""
RUNNING: Final = Needs(
    tuple(one for one in PACKAGES if one != "loadtests"),
    (*COMPARING.packages, "jinja2", "langchain-core", "langgraph", "pydantic", "regex"),
)
"""Of stacks that are run: their code, that of the rules, and what reads a tape to them."""


LOADING: Final = Needs(
    ("contract", "loadtests"), ("gevent", "httptools", "locust", "msgspec", "uvloop")
)
"""Of load: what sends requests and takes times."""


def versions(needs: Needs) -> Mapping[str, str]:
    """Return what this process runs of what results depend on: versions, and digests of code."""
    return {
        "python": python_version(),
        **{name: version(name) for name in needs.packages},
        # One of the stacks may be retired.
        **{f"code of {one}": fingerprint(one) for one in needs.code if find_spec(one)},
        **{
            f"prompts of {flow}": fingerprint("contract", {flow: folder})
            for flow, folder in needs.prompts
        },
    }


def differing(found: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Say what another process runs other than this one; "" where it is the same."""
    return "; ".join(
        f"{name} {found.get(name, 'not at all')}, here {here}"
        for name, here in own.items()
        if found.get(name) != here
    )


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
