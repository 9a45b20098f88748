"""Start the services of compose.yaml on this machine, each as a process, without containers.

    python deploy/local.py

Each service gets an address of its own in 127.0.0.0/8, so ports stay as compose.yaml has them;
names of services and paths of volumes are replaced in its command, environment and mounted files.
It starts when what it depends on is healthy, by the health checks of the file. Then messages are
sent through nginx, the routers are replaced one after the other while streams are open, captures
are read from the store and compared, Prometheus is asked what it scraped; all stop in order.

It needs Linux, the project's development packages, nginx and redis-server, and a PostgreSQL at
`--postgres`, in which it uses a database of its own. moto stands for the object store. Prometheus
is left out where it is not installed, Grafana always. Exit status: 0, or 1 where something was not
as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import repeat
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import psycopg
import yaml

from contract.errors import CutoverError

DEPLOY = Path(__file__).resolve().parent
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
POSTGRES = "postgresql://postgres:postgres@127.0.0.1:5432/postgres"
PROFILES = frozenset({"simulated"})
LEFT_OUT = frozenset({"grafana"})
START_SECONDS = 90.0
_LOOK_SECONDS = 0.1
"""Between two health checks; compose waits for the file's `interval`, also before the first."""
_VARIABLE = re.compile(r"\$(?:\$|{(\w+)(?::([?-])([^}]*))?})")
_DSN = re.compile(r"postgresql://[^/\s]+@postgres:5432/cutover")
_ENTRYPOINTS = {"cutover": ["cutover"], "prom/prometheus": ["prometheus"]}
ROUTERS = ("router-1", "router-2")
STORE = "store"
_STORE_PORT = 8333
CAPTURES = "s3://cutover/captures"
MESSAGES = 12
CLIENTS = 3
_PAUSE_SECONDS = 0.05
"""Between the messages of a client: the routers that start need the processor, too."""


class TopologyFailed(CutoverError):
    """A service did not start or stop as compose.yaml says."""

    def __init__(self, service: str, what: str, log: Path | None = None) -> None:
        end = log.read_text("utf-8", "replace")[-800:] if log is not None and log.exists() else ""
        super().__init__(f"{service}: {what}{f'; its log ends: {end}' if end else ''}")


class VariableMissing(CutoverError):
    """A variable that compose.yaml requires is not set."""

    def __init__(self, name: str, meaning: str) -> None:
        super().__init__(f"compose.yaml: {name} is not set: {meaning}")


class ProgramMissing(CutoverError):
    """What a service runs is not installed here."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"not installed: {', '.join(names)} (.ci/run installs what it needs)")


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Put variables into a Compose file; raises `VariableMissing`."""

    def value(match: re.Match[str]) -> str:
        name, kind, more = match.groups()
        if name is None:
            return "$"
        found = variables.get(name, "")
        if not found and kind == "?":
            raise VariableMissing(name, more)
        return found or (more if kind == "-" else "")

    return _VARIABLE.sub(value, text)


def drawn_secrets(text: str) -> dict[str, str]:
    """Return a value for each variable that a Compose file requires."""
    required = {match[1] for match in _VARIABLE.finditer(text) if match[2] == "?"}
    drawn = {name: secrets.token_hex(16) for name in sorted(required)}
    # 32 bytes.
    return drawn | {"CUTOVER_PAUSE_KEY": base64.b64encode(secrets.token_bytes(32)).decode()}


def seconds(text: str) -> float:
    """Return a duration such as `300s`."""
    return float(text.removesuffix("s"))


@dataclass(slots=True)
class Service:
    """A service, where it listens, and its process while it runs."""

    name: str
    address: str
    root: Path
    settings: Mapping[str, Any]
    process: asyncio.subprocess.Process | None = None
    started_seconds: float = 0.0

    @property
    def log(self) -> Path:
        """What it wrote."""
        return self.root / "log"

    @property
    def image(self) -> str:
        """The image's name without its version."""
        return str(self.settings["image"]).rpartition(":")[0]

    @property
    def dependencies(self) -> list[str]:
        """The services that must be healthy, or have ended well, before it starts."""
        return list(self.settings.get("depends_on", {}))

    @property
    def health(self) -> list[str]:
        """The command of its health check, if it has any."""
        return list(self.settings.get("healthcheck", {}).get("test", ()))[1:]

    @property
    def lasts(self) -> bool:
        """Whether it is to run always; otherwise it does something once, and ends."""
        return "restart" in self.settings

    @property
    def published_port(self) -> int:
        """The port at which this host reaches it."""
        return int(self.settings["ports"][0].split(":")[1])

    @property
    def mounts(self) -> list[tuple[str, str]]:
        """Sources (a path, a volume's name, "" in memory) and targets of what is mounted."""
        bound = [volume.split(":")[:2] for volume in self.settings.get("volumes", [])]
        in_memory = [["", place.split(":")[0]] for place in self.settings.get("tmpfs", [])]
        return [(source, target) for source, target in (*bound, *in_memory)]


@dataclass(slots=True)
class Topology:
    """The services of compose.yaml, running on this machine."""

    folder: Path
    database: str
    services: dict[str, Service] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        """The files of deploy/ as they are mounted; an edit is seen as in containers."""
        return self.folder / "files"

    def url(self, service: str, port: int) -> str:
        """Return where a service listens."""
        return f"http://{self.services[service].address}:{port}"

    def prepare(self, variables: Mapping[str, str]) -> None:
        """Read compose.yaml, give addresses, and copy what is mounted."""
        text = interpolate((DEPLOY / "compose.yaml").read_text("utf-8"), variables)
        network = f"127.{random.SystemRandom().randint(1, 254)}.{secrets.randbelow(256)}"
        for number, (name, settings) in enumerate(yaml.safe_load(text)["services"].items(), 2):
            root = self.folder / name
            self.services[name] = Service(name, f"{network}.{number}", root, settings)
        for service in self.services.values():
            for source, target in () if service.name in LEFT_OUT else service.mounts:
                self._mount(service, source, target)
            (service.root / "tmp").mkdir(parents=True, exist_ok=True)
            (service.root / "var/lib/cutover").mkdir(parents=True, exist_ok=True)
        self._configure_nginx(self.services["balancer"])

    def _mount(self, service: Service, source: str, target: str) -> None:
        place = service.root / target.lstrip("/")
        if not source:
            place.mkdir(parents=True, exist_ok=True)
            return
        given = DEPLOY / source if source.startswith(".") else None
        held = self.files / source if given else self.folder / "volumes" / source
        if not held.exists():
            for path in [given, *given.rglob("*")] if given else []:
                copy = self.files / path.relative_to(DEPLOY)
                if path.is_file():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_text(self._names_replaced(path.read_text("utf-8")), "utf-8")
            if given is None:
                held.mkdir(parents=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(held)

    def _names_replaced(self, text: str) -> str:
        text = _DSN.sub(lambda _: self.database, text)
        names = "|".join(map(re.escape, self.services))
        return re.sub(
            rf"(?<![\w.-])({names})(?=:\d)", lambda match: self.services[match[1]].address, text
        )

    def _local(self, service: Service, text: str) -> str:
        """Return a word of a command, or a value, as it is on this machine."""
        text = re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1)\b", service.address, text)
        text = self._names_replaced(text)
        targets = "|".join(re.escape(target) for _, target in service.mounts)
        # At once: what is put in begins with a folder that may be a target, too.
        return re.sub(rf"(?<![\w/])(?=(?:{targets or '(?!)'})(?![\w-]))", str(service.root), text)

    def _configure_nginx(self, service: Service) -> None:
        # The image's own configuration; the published port, since 80 is root's.
        own = self.files / "nginx.conf"
        listen = f"listen {service.address}:{service.published_port};"
        own.write_text(own.read_text("utf-8").replace("listen 80;", listen), "utf-8")
        scratch = service.root / "tmp"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        kept = " ".join(f"{kind}_temp_path {scratch}/{kind};" for kind in kinds)
        (service.root / "etc/nginx/nginx.conf").write_text(
            f"""{"user root;" if os.geteuid() == 0 else ""}
daemon off;
worker_processes 2;
pid {scratch}/pid;
error_log stderr;
events {{}}
http {{ access_log off; {kept} include conf.d/*.conf; }}
""",
            "utf-8",
        )

    def command(self, service: Service, *arguments: str) -> list[str]:
        """Return the command of a service's process; `arguments` are in place of its own."""
        if service.image == "nginx":
            configuration = service.root / "etc/nginx/nginx.conf"
            return ["nginx", "-p", str(service.root), "-c", str(configuration)]
        if service.name == STORE:
            return ["moto_server", "--host", service.address, "--port", str(_STORE_PORT)]
        entrypoint = service.settings.get("entrypoint") or _ENTRYPOINTS.get(service.image, [])
        words = [*entrypoint, *(arguments or service.settings.get("command", []))]
        return [self._local(service, str(word)) for word in words]

    def _environment(self, service: Service) -> dict[str, str]:
        given = service.settings.get("environment", {})
        own = {name: self._local(service, str(value)) for name, value in given.items()}
        places = {"HOME": service.root / "var/lib/cutover", "TMPDIR": service.root / "tmp"}
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(DEPLOY.parent),
            "PYTHONUNBUFFERED": "1",
            **{name: str(path) for name, path in places.items()},
            **own,
        }

    async def _spawn(
        self, service: Service, command: Sequence[str], log: str = "log"
    ) -> asyncio.subprocess.Process:
        with (service.root / log).open("ab") as log_file:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd=service.root / "var/lib/cutover",
                env=self._environment(service),
                start_new_session=True,
            )

    async def _status(self, service: Service, command: Sequence[str], log: str = "log") -> int:
        process = await self._spawn(service, command, log)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run(self, name: str, *arguments: str) -> int:
        """Do what `docker compose run --rm NAME ARGUMENTS` does; returns the exit status.

        What it writes is in the service's log.
        """
        service = self.services[name]
        return await self._status(service, self.command(service, *arguments))

    async def start(self, name: str) -> None:
        """Start a service; wait until it is healthy, or has ended well; raises `TopologyFailed`."""
        service, began = self.services[name], time.monotonic()
        if service.image == "postgres":
            return
        process = service.process = await self._spawn(service, self.command(service))
        service.started_seconds = 0.0

        async def stands() -> bool:
            if process.returncode is not None or not service.lasts:
                return process.returncode is not None
            return not service.health or await self._is_healthy(service)

        try:
            await until(stands)
        except TimeoutError:
            what = f"is not healthy after {START_SECONDS:.0f} s"
            raise TopologyFailed(name, what, service.log) from None
        if process.returncode or (service.lasts and process.returncode is not None):
            service.process = None
            raise TopologyFailed(name, f"ended with status {process.returncode}", service.log)
        service.started_seconds = time.monotonic() - began

    async def _is_healthy(self, service: Service) -> bool:
        if service.name == STORE:  # moto has no such page
            words = ["curl", "--silent", self.url(STORE, _STORE_PORT)]
        else:
            words = [self._local(service, word) for word in service.health]
        if service.image == "nginx":
            words = [word.replace(":80/", f":{service.published_port}/") for word in words]
        return await self._status(service, words, "health") == 0

    async def stop(self, name: str) -> None:
        """Send a service its signal and wait for its end; raises `TopologyFailed`.

        A process of cutover that was healthy has to end with status 0. All are gone afterwards,
        whatever is raised.
        """
        service = self.services[name]
        process, service.process = service.process, None
        if process is None:
            return
        if service.lasts and process.returncode is not None:
            raise TopologyFailed(name, f"had ended, with status {process.returncode}", service.log)
        sent = signal.Signals[service.settings.get("stop_signal", "SIGTERM")]
        if process.returncode is None:
            process.send_signal(sent)
        patience = seconds(service.settings.get("stop_grace_period", "10s"))
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            raise TopologyFailed(name, f"still ran {patience:.0f} s after {sent.name}") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                left = False
            else:
                left = True
                await process.wait()
        if left:
            raise TopologyFailed(name, "left processes behind", service.log)
        if process.returncode and service.image == "cutover" and service.started_seconds:
            what = f"stopped with status {process.returncode}"
            raise TopologyFailed(name, what, service.log)

    async def restart(self, name: str) -> None:
        """Replace a service's process, as `up` of a newer image does."""
        await self.stop(name)
        await self.start(name)

    async def reload_balancer(self) -> None:
        """Let nginx read its configuration, as `exec balancer nginx -s reload` does.

        Returns once its earlier workers take no more requests.
        """
        service = self.services["balancer"]
        assert service.process is not None
        earlier = psutil.Process(service.process.pid).children()
        if await self._status(service, [*self.command(service), "-s", "reload"]):
            raise TopologyFailed(service.name, "did not reload", service.log)

        async def gone() -> bool:
            return all("shutting down" in _title(one) for one in earlier)

        await until(gone)

    async def replace_router(self, name: str) -> None:
        """Take a router out of the balancer, replace it, let it serve again: no request fails."""
        upstream = self.files / "compose/nginx/upstream.conf"
        whole = upstream.read_text("utf-8")
        address = re.escape(self.services[name].address)
        upstream.write_text(re.sub(rf"(server {address}\b.*);", r"\1 down;", whole), "utf-8")
        await self.reload_balancer()
        await self.restart(name)
        upstream.write_text(whole, "utf-8")
        await self.reload_balancer()

    async def start_all(self, names: AbstractSet[str]) -> None:
        """Start services, each after those it depends on; raises a group of `TopologyFailed`."""
        started = {name: asyncio.Event() for name in self.services}

        async def start(name: str) -> None:
            for other in self.services[name].dependencies:
                await started[other].wait()
            if name in names:
                await self.start(name)
            started[name].set()

        async with asyncio.TaskGroup() as group:
            for name in self.services:
                group.create_task(start(name))

    async def stop_all(self) -> None:
        """Stop each service after those that depend on it; raises the first `TopologyFailed`."""
        stopped = {name: asyncio.Event() for name in self.services}

        async def stop(name: str) -> None:
            for other in self.services.values():
                if name in other.dependencies:
                    await stopped[other.name].wait()
            try:
                await self.stop(name)
            finally:
                stopped[name].set()

        failures = await asyncio.gather(*map(stop, self.services), return_exceptions=True)
        for failure in filter(None, failures):
            raise failure


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or "shutting down"  # a zombie has none
    except psutil.NoSuchProcess:
        return "shutting down"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Look until a condition holds; raises `TimeoutError` after `START_SECONDS`."""
    async with asyncio.timeout(START_SECONDS):
        for seconds_to_wait in repeat(_LOOK_SECONDS):
            if await condition():
                return
            await asyncio.sleep(seconds_to_wait)


@asynccontextmanager
async def own_database(server: str) -> AsyncIterator[str]:
    """Make a database of a PostgreSQL, dropped afterwards; yields its address."""
    name = f"cutover_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@asynccontextmanager
async def running(folder: Path, postgres: str = POSTGRES) -> AsyncIterator[Topology]:
    """Start all services that are not left out, and stop them in order; raises `CutoverError`."""
    missing = [name for name in ("nginx", "redis-server") if shutil.which(name, path=PATH) is None]
    if missing:
        raise ProgramMissing(missing)
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    variables = drawn_secrets(text) | {"OPENAI_BASE_URL": "http://simulator:8090/v1"}
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(own_database(postgres))
        topology = Topology(folder, database)
        topology.prepare(variables)
        here = {
            name
            for name, service in topology.services.items()
            if set(service.settings.get("profiles", PROFILES)) <= PROFILES
            and name not in LEFT_OUT
            and (name != "prometheus" or shutil.which(name, path=PATH))
        }
        try:
            await topology.start_all(here)
        except BaseException:
            with suppress(TopologyFailed):  # why it did not start is what counts
                await topology.stop_all()
            raise
        try:
            yield topology
        finally:
            await topology.stop_all()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a running topology.

    Of the `messages`, most are from while the routers were replaced; `cut` are streams without an
    end, `failed` requests without a stream. `pairs` of runs were compared, `different` of them
    differ. `scraped` is what Prometheus counts, None where it is not installed; `rules` are the
    alerts it evaluates.
    """

    messages: int
    cut: int
    failed: int
    pairs: int
    different: int
    scraped: float | None
    rules: int

    @property
    def good(self) -> bool:
        """Whether all is as it should be."""
        captured = self.pairs >= MESSAGES and not self.different
        scraped = self.scraped is None or (self.scraped > 0 and self.rules > 0)
        return not self.cut and not self.failed and captured and scraped


async def send(session: aiohttp.ClientSession, url: str, message: str) -> str:
    """Send one message through the balancer; returns "" or how its stream failed."""
    body = {"message_id": message, "chat_id": message, "content": f"What is 12 * 7? {message}"}
    try:
        async with session.post(f"{url}/chat/sse", json=body) as response:
            if response.status != HTTPStatus.OK:
                return f"failed: {response.status}"
            text = await response.text()
    except aiohttp.ClientError as error:
        return f"cut: {error}"
    return "" if '"SUCCESS"' in text and text.rstrip().endswith('{"step":"END"}') else "cut: no end"


async def page(session: aiohttp.ClientSession, url: str, **query: str) -> Any:
    """Read a page of JSON."""
    async with session.get(url, params=query) as response:
        return await response.json()


async def scrapes(
    session: aiohttp.ClientSession, topology: Topology, exchanges: int
) -> tuple[float | None, int]:
    """Wait until Prometheus counts exchanges; returns how many, and the alerts it evaluates."""
    if topology.services["prometheus"].process is None:
        return None, 0
    url, found = f"{topology.url('prometheus', 9090)}/api/v1", 0.0

    async def counted() -> bool:
        nonlocal found
        answer = await page(session, f"{url}/query", query="sum(cutover_exchanges_total)")
        found = sum(float(one["value"][1]) for one in answer["data"]["result"])
        return found >= exchanges

    await until(counted)
    groups = (await page(session, f"{url}/rules"))["data"]["groups"]
    return found, sum(len(group["rules"]) for group in groups)


async def shadows_ended(session: aiohttp.ClientSession, topology: Topology) -> None:
    """Wait until no router has a shadow to run."""

    async def idle() -> bool:
        states = [await page(session, f"{topology.url(name, 8080)}/readyz") for name in ROUTERS]
        return not any(state["ledger"]["open"] for state in states)

    await until(idle)


async def look(topology: Topology) -> Seen:
    """Send messages, replace both routers under load, compare what was captured, ask Prometheus."""
    balancer = topology.services["balancer"]
    url = topology.url("balancer", balancer.published_port)
    replaced = asyncio.Event()
    # nginx that reloads closes a connection once its stream has ended: a client that sends the next
    # message on it in the same moment could not tell. People take longer; these take a new one.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        sent = [send(session, url, f"first {number}") for number in range(MESSAGES)]
        found = list(await asyncio.gather(*sent))
        scraped, rules = await scrapes(session, topology, MESSAGES)
        await shadows_ended(session, topology)

        async def client(number: int) -> list[str]:
            turns: list[str] = []
            while not replaced.is_set():
                turns.append(await send(session, url, f"client {number} {len(turns)}"))
                await asyncio.sleep(_PAUSE_SECONDS)
            return turns

        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(client(number)) for number in range(CLIENTS)]
            for name in ROUTERS:
                await topology.replace_router(name)
            replaced.set()
        for one in clients:
            found += one.result()
    await topology.run("operator", "diff", CAPTURES, "-o", "report", "--format", "json")
    home = topology.services["operator"].root / "var/lib/cutover"
    report = json.loads((home / "report/report.json").read_text("utf-8"))
    return Seen(
        messages=len(found),
        cut=sum(one.startswith("cut") for one in found),
        failed=sum(one.startswith("failed") for one in found),
        pairs=report["counts"]["pairs"],
        different=report["counts"]["different"],
        scraped=scraped,
        rules=rules,
    )


async def _main(postgres: str) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cutover-topology-") as folder:
        async with running(Path(folder), postgres) as topology:
            print(f"all healthy after {time.monotonic() - began:.1f} s")
            for name, service in topology.services.items():
                stands = f"{service.address}, after {service.started_seconds:.1f} s"
                print(f"  {name:13} {stands if service.process else 'left out'}")
            seen = await look(topology)
            print(f"looked at after {time.monotonic() - began:.1f} s")
        print(f"all stopped, nothing left, after {time.monotonic() - began:.1f} s")
    print(f"  {seen.messages} messages, most while the routers were replaced one after the other:")
    print(f"  {seen.failed} requests failed, {seen.cut} streams were cut")
    print(f"  {seen.pairs} pairs of runs compared from {CAPTURES}, {seen.different} differ")
    if seen.scraped is not None:
        print(f"  Prometheus counted {seen.scraped:.0f} exchanges, evaluates {seen.rules} alerts")
    return 0 if seen.good else 1


def main() -> None:
    """Start, look, stop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--postgres", default=POSTGRES, help="a server, for a database of its own")
    try:
        status = asyncio.run(_main(parser.parse_args().postgres))
    except* KeyboardInterrupt:
        sys.exit(130)
    except* (CutoverError, OSError, psycopg.Error) as failures:
        for failure in failures.exceptions:
            print(f"local.py: {failure}", file=sys.stderr)
        sys.exit(1)
    sys.exit(status)


if __name__ == "__main__":
    main()
