"""What every test may ask for: virtual time, no leaks, shared data, optional servers."""

import asyncio
import gc
import multiprocessing.forkserver
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import httpcore2
import pytest
from hypothesis import HealthCheck, Phase, settings
from pytest_asyncio import is_async_test

from effects.places import Place
from effects.testing import VirtualLoop
from loadtests.processes import own_port
from tests.support.patience import be_patient
from tests.support.postgres import own_schema, pgvector_server
from tests.support.project import PACKAGES, root_of

if TYPE_CHECKING:
    from tests.support.object_server import ObjectServer

ROOT = Path(__file__).resolve().parent.parent
# Sixty processes are started; each would compile the project anew where no bytecode is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A worker of the suite has a width, a pipe has none: tables would be folded in one of them.
os.environ.pop("COLUMNS", None)

FORKED_WITH = [
    "tests.e2e.processes",
    "tests.support.forked",
    "cutover.cli.operate.serve",
    "graph_impl",
    "legacy",
    "compare.captures",
    "cutover.replay.pool",
    "cutover.prompts.examination",
    "cutover.prompts.proof",
]
"""What processes find imported that are forked by tests."""

TURNS_TO_END = 20
"""A cancelled graph run needs a dozen."""

# What is drawn (wires cut anywhere, machines of a few states) shows its faults within forty
# examples or in thousands: every run has forty, always the same ones; `--hypothesis-profile=long`
# has two thousand, other ones each time, for code that is new. A test that needs more than others
# asks for a multiple of the profile's number. Only "long" explains what it found: that follows
# every line, which coverage does already. How fast examples are drawn is the machine's affair.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=40,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile("ci")


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give tests marked `virtual` the jumping clock and all others the loop of every day."""
    if item.get_closest_marker("virtual"):
        return {"virtual": VirtualLoop}
    return {"default": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while the suite is read, and never again among what it consists of.

    Half a million objects, which live to the end, were walked again and again: by every collection,
    and by the many with which pytest and the interpreter end.
    """
    gc.disable()
    try:
        with _own_imports_traced():
            return (yield)
    finally:
        gc.collect()  # what is frozen now is never freed
        gc.freeze()
        gc.enable()


# Coverage doubles the time of all that runs, whoever wrote it: it follows our imports, the
# fixtures and the tests, and neither pytest's own work nor the imports of libraries.
_tracers: list[Any] = []


@contextmanager
def _own_imports_traced() -> Iterator[None]:
    """Trace the imports of the project's modules, and nothing else; afterwards nothing."""
    tracer: Any = sys.gettrace()
    if not hasattr(tracer, "start"):  # none, or a debugger's
        yield
        return
    _tracers[:] = [tracer]
    execute = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
        with _traced(wanted=root_of(module.__name__) in PACKAGES):
            execute(loader, module)

    with pytest.MonkeyPatch.context() as patch, _traced(wanted=False):
        patch.setattr(SourceFileLoader, "exec_module", exec_module)
        yield
    tracer.stop()


@contextmanager
def _traced(*, wanted: bool = True) -> Iterator[None]:
    """Run coverage's tracer, or stop it, within the block."""
    if not _tracers or wanted == (sys.gettrace() is not None):
        yield
        return
    [tracer] = _tracers
    enter, leave = (tracer.start, tracer.stop) if wanted else (tracer.stop, tracer.start)
    enter()
    try:
        yield
    finally:
        leave()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Trace what a fixture does."""
    with _traced():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Trace how fixtures end."""
    with _traced():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace a test, unless it is marked `untraced`.

    pytest-cov's own mark, `no_cover`, stops one of the two measurements a worker of xdist has, upon
    which the other goes on. Which tests may bear the mark is found with a context for each test.
    """
    if item.get_closest_marker("untraced") is None:
        with _traced():
            return (yield)
    in_threads = threading.gettrace()
    threading.settrace(cast("Any", None))  # documented so, and typed otherwise
    try:
        return (yield)
    finally:
        threading.settrace(cast("Any", in_threads))


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fail a test that leaves tasks behind; every asynchronous test has it.

    Tasks from before the test (of a loop with a longer life) are not the test's.
    """
    before = asyncio.all_tasks()
    yield
    for _ in range(TURNS_TO_END):  # a task cancelled in the last line needs turns to end
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        names = sorted(repr(task) for task in left)
        pytest.fail("the test left tasks behind:\n  " + "\n  ".join(names))


@pytest.fixture
async def no_event_watcher(no_leaks: None) -> AsyncIterator[None]:
    """End the task with which the MCP SDK's library of events watches each loop for good."""
    assert no_leaks is None
    yield
    left = [task for task in asyncio.all_tasks() if "_shutdown_watcher" in repr(task)]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@pytest.fixture(autouse=True)
def _leaks_are_failures(request: pytest.FixtureRequest) -> None:
    # Synchronous tests are spared the loop that `no_leaks` needs.
    if is_async_test(request.node):
        request.getfixturevalue("no_leaks")


@pytest.fixture(autouse=True)
def _neighbours_are_waited_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A test of such a limit sets its own, or is virtual.
    if request.node.get_closest_marker("virtual") is None:
        sockets = request.node.get_closest_marker("sockets")
        be_patient(monkeypatch.setattr, importing=sockets is not None)


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    # Every client of a provider would read the machine's own: 30 ms each, and no test uses TLS.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_fork_server_has_imported_what_all_need() -> Iterator[None]:
    # A process has one, and who starts it first decides: the others' processes would import anew.
    set_preload = multiprocessing.forkserver.set_forkserver_preload
    set_preload(FORKED_WITH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing.forkserver, "set_forkserver_preload", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of recorded provider streams next to the project, or skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data next to the project")
    return folder


@pytest.fixture(scope="session")
def redis_url() -> str:
    """Return the address of a Redis on loopback; without one skip, and fail under CI."""
    _require_server("Redis", 6379)
    return "redis://127.0.0.1:6379/0"


@pytest.fixture(scope="session")
def postgres_dsn() -> str:
    """Return the address of a PostgreSQL on loopback; without one skip, and fail under CI."""
    _require_server("PostgreSQL", 5432)
    return "postgresql://postgres:postgres@127.0.0.1:5432/postgres"


@pytest.fixture(scope="session")
def s3_server() -> Iterator["ObjectServer"]:
    """Return an S3-compatible server on loopback, of this process alone."""
    support = import_module("tests.support.object_server")  # few tests need it: 0.3 s
    with support.object_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: "ObjectServer", monkeypatch: pytest.MonkeyPatch) -> Iterator["ObjectServer"]:
    """Return the server with an empty `bucket`, and its address in the environment."""
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    s3_server.new_bucket()
    yield s3_server
    s3_server.reset()


@pytest.fixture(params=["memory", "s3"])
def object_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty place of objects: in memory, and at the server."""
    if request.param == "s3":
        yield f"{request.getfixturevalue('s3').bucket}/captures"
        return
    place = f"memory://{tmp_path.name}"
    yield place
    system = Place(place).system
    if system.exists(place):
        system.rm(place, recursive=True)


@pytest.fixture
async def dsn(postgres_dsn: str) -> AsyncIterator[str]:
    """Return the address of a schema of PostgreSQL without tables."""
    async with own_schema(postgres_dsn) as own:
        yield own


@pytest.fixture
def module_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder to import modules from; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        path = tmp_path.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").exists():
            del sys.modules[name]


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Return a port of loopback without a server; no other process gets it meanwhile."""
    with own_port() as port:
        yield port


@pytest.fixture(scope="session")
def pgvector_dsn() -> Iterator[str]:
    """Return the address of a PostgreSQL with pgvector, one for all workers.

    For root it runs as another user, for whom pytest closes its own folders.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with pgvector_server(Path(gettempdir()) / f"cutover-pgvector-{run}") as dsn:
        yield dsn


def _require_server(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return
    missing = f"no {name} on 127.0.0.1:{port}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{missing}, and CI=true asks for it")
    pytest.skip(missing)
