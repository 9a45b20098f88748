"""Every `FlagWriter` behaves alike: the file, flagd's file, an HTTP service, the fake."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from openfeature.contrib.tools.flagd.core import FlagdCore

from contract.flows import SPECS
from cutover.ramp.flags import (
    FakeFlags,
    FileFlags,
    FlagsChanged,
    FlagsReadOnly,
    FlagsUnavailable,
    FlagWriter,
    ServiceFlags,
    file_audit,
)
from cutover.ramp.machine import Flags
from cutover.ramp.services import FlagdFile, HttpFlags
from cutover.wiring.history import opening
from router.config.loader import load_settings

pytestmark = pytest.mark.sockets

CONFIG = """
# ours
[flows.chat]
enable_langgraph = true
langgraph_percent = 5.0 # begins
[admin]
audit_path = "FOLDER/audit.jsonl"
[stores]
history = "sqlite:///FOLDER/history.sqlite"
"""
FLAGD = {
    "$schema": "https://flagd.dev/schema/v0/flags.json",
    "flags": {
        "chat.enable_langgraph": {
            "state": "ENABLED",
            "variants": {"on": True, "off": False},
            "defaultVariant": "on",
        },
        "chat.langgraph_percent": {
            "state": "ENABLED",
            "variants": {"1": 1, "some": 5},
            "defaultVariant": "some",
        },
        "other": {"state": "ENABLED", "variants": {"a": 1}, "defaultVariant": "a"},
    },
}
BEGIN = Flags(enabled=True, percent=5.0)
KINDS = ("file", "flagd", "http", "fake", "service")


class FlagServer(BaseHTTPRequestHandler):
    """A service with the flags of one flow, tags and a token."""

    flags: dict[str, object]
    tag = 0
    status = 0
    allow = "GET, PUT"
    steps_in = False
    login = False
    weak = ""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("etag", f'{self.weak}"{self.tag}"')
        self.send_header("allow", self.allow)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer with the flags."""
        assert self.headers["authorization"] == "Bearer planted"
        self._answer(self.status or 200, json.dumps(self.flags).encode())

    def do_PUT(self) -> None:
        """Replace the flags that have this tag."""
        body = self.rfile.read(int(self.headers["content-length"]))
        kind = type(self)
        if self.login:
            self.send_response(303)
            self.send_header("location", self.path)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if self.headers["if-match"] != f'"{self.tag}"' or kind.steps_in:
            self._answer(412)
            return
        kind.flags, kind.tag = json.loads(body), self.tag + 1
        self._answer(204)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def flag_server() -> Iterator[tuple[str, type[FlagServer]]]:
    """Serve the flags of a flow; yields the address."""
    flags = {"enable_langgraph": True, "langgraph_percent": 5}
    handler = type("Own", (FlagServer,), {"flags": flags})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/flows/{{flow}}", handler
        finally:
            server.shutdown()
            thread.join()


def config(folder: Path, more: str = "") -> Path:
    """Write a configuration whose flow has 5 %."""
    path = folder / "cutover.toml"
    path.write_text(CONFIG.replace("FOLDER", str(folder)) + more, "utf-8")
    return path


def flagd(folder: Path) -> Path:
    """Write flagd's file."""
    path = folder / "flags.json"
    path.write_text(json.dumps(FLAGD), "utf-8")
    return path


def serviced(folder: Path, service: FlagWriter) -> ServiceFlags:
    """Return a service's flags beside those of a file."""
    path = config(folder)
    audit = file_audit(load_settings(path, SPECS))
    return ServiceFlags(FileFlags(path, "chat", "ann"), service, audit)


@pytest.fixture(params=KINDS)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlagWriter]:
    """Yield each writer, with 5 % in force."""
    match request.param:
        case "file":
            yield FileFlags(config(tmp_path), "chat", "ann")
        case "flagd":
            yield FlagdFile("chat", str(flagd(tmp_path)))
        case "http":
            with flag_server() as (url, _):
                yield HttpFlags("chat", url, "planted")
        case "service":
            yield serviced(tmp_path, FakeFlags(BEGIN))
        case _:
            yield FakeFlags(BEGIN)


def test_flags_are_written_if_they_are_as_expected(writer: FlagWriter) -> None:
    """Steps up, the switch off, and the same again."""
    writer.check()
    assert writer.read() == BEGIN
    for new in (
        Flags(enabled=True, percent=25.0),
        Flags(enabled=True, percent=0.125),
        Flags(enabled=False, percent=0.125),
        Flags(enabled=False, percent=0.125),
    ):
        writer.write(writer.read(), new)
        assert writer.read() == new


@pytest.mark.parametrize(
    "other", [Flags(enabled=False, percent=5.0), Flags(enabled=True, percent=5.001)]
)
def test_flags_that_others_changed_are_left_alone(writer: FlagWriter, other: Flags) -> None:
    """Compare and set: either flag counts."""
    writer.write(BEGIN, other)
    with pytest.raises(FlagsChanged):
        writer.write(BEGIN, Flags(enabled=True, percent=25.0))
    assert writer.read() == other


def test_a_step_in_the_file_is_a_line_of_its_own_on_record(tmp_path: Path) -> None:
    """The comment stays; audit and history name who and what, and only what changed."""
    path = config(tmp_path)
    writer = FileFlags(path, "chat", "ann (cutover ramp)")
    writer.write(BEGIN, Flags(enabled=True, percent=25.0))
    assert "langgraph_percent = 25.0 # begins" in path.read_text("utf-8")
    writer.write(Flags(enabled=True, percent=25.0), Flags(enabled=False, percent=25.0))
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert [(one["what"], one["who"]) for one in lines] == [
        ("ramp", "ann (cutover ramp)"),
        ("rollback", "ann (cutover ramp)"),
    ]
    assert lines[1]["after"] == {"enable_langgraph": False, "langgraph_percent": 25}


async def test_a_step_in_the_file_is_in_the_history(tmp_path: Path) -> None:
    """With its author, before a router sees it."""
    path = config(tmp_path)
    writer = FileFlags(path, "chat", "ann")
    await asyncio.to_thread(writer.write, BEGIN, Flags(enabled=True, percent=25.0))
    opened = opening(load_settings(path, SPECS), {})
    assert opened is not None
    async with opened as history:
        entries = await history.entries("chat")
    assert [(one.who, one.what, bytes(one.after)) for one in entries][-1:] == [
        ("ann", "flows.chat.langgraph_percent", b"25.000")
    ]


@pytest.mark.parametrize(
    "new", [Flags(enabled=True, percent=12.5), Flags(enabled=False, percent=5.0)]
)
def test_flagd_serves_what_was_written(tmp_path: Path, new: Flags) -> None:
    """By the evaluator that flagd's own provider runs on a file."""
    path = flagd(tmp_path)
    FlagdFile("chat", str(path)).write(BEGIN, new)
    evaluator = FlagdCore()
    evaluator.set_flags(path.read_text("utf-8"))
    enabled = evaluator.resolve_boolean_value("chat.enable_langgraph", not new.enabled)
    percent = evaluator.resolve_float_value("chat.langgraph_percent", -1.0)
    assert (enabled.value, percent.value) == (new.enabled, new.percent)
    assert evaluator.resolve_integer_value("other", -1).value == 1


def test_flagd_keeps_what_it_has_beside(tmp_path: Path) -> None:
    """Other flags and the schema stay; a value without a variant gets one."""
    path = flagd(tmp_path)
    writer = FlagdFile("chat", str(path))
    writer.write(BEGIN, Flags(enabled=False, percent=1.0))
    writer.write(Flags(enabled=False, percent=1.0), Flags(enabled=False, percent=25.0))
    document = json.loads(path.read_bytes())
    assert document["$schema"] == FLAGD["$schema"]
    assert document["flags"]["other"]["defaultVariant"] == "a"
    assert document["flags"]["chat.enable_langgraph"]["defaultVariant"] == "off"
    percent = document["flags"]["chat.langgraph_percent"]
    assert (percent["defaultVariant"], percent["variants"]) == ("25", {"1": 1, "some": 5, "25": 25})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "DISABLED"}, "must be ENABLED"),
        ({"targeting": {"if": []}}, "no targeting"),
        ({"defaultVariant": "none"}, "no default variant"),
        ({"variants": {"some": 101}}, "allowed: 0 to 100"),
    ],
)
def test_a_flagd_flag_that_says_no_percentage_is_unavailable(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    """A ramp pauses on it."""
    path = flagd(tmp_path)
    document = json.loads(path.read_bytes())
    document["flags"]["chat.langgraph_percent"] |= change
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(FlagsUnavailable, match=why):
        FlagdFile("chat", str(path)).read()


@pytest.mark.parametrize("content", ["{", "[]", "{}", None])
def test_a_flagd_file_that_cannot_be_read_is_unavailable(
    tmp_path: Path, content: str | None
) -> None:
    """Half written, of another kind, or gone."""
    path = tmp_path / "flags.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(FlagsUnavailable):
        FlagdFile("chat", str(path)).read()


def test_http_that_fails_is_unavailable() -> None:
    """Errors of the server, an unusable answer, and nobody there; nothing is written."""
    with flag_server() as (url, service):
        writer = HttpFlags("chat", url, "planted")
        service.status = 500
        with pytest.raises(FlagsUnavailable, match="answers 500"):
            writer.read()
        service.status, service.flags = 0, {"enable_langgraph": "yes"}
        with pytest.raises(FlagsUnavailable, match="neither true nor false"):
            writer.write(BEGIN, Flags(enabled=True, percent=25.0))
    with pytest.raises(FlagsUnavailable, match="does not answer"):
        writer.read()


def test_http_flags_that_change_in_between_are_left_alone() -> None:
    """The tag is another one by the time of the PUT."""
    with flag_server() as (url, service):
        service.steps_in = True
        with pytest.raises(FlagsChanged):
            HttpFlags("chat", url, "planted").write(BEGIN, Flags(enabled=True, percent=25.0))
        assert service.flags["langgraph_percent"] == 5


def test_http_that_leads_a_write_to_a_page_has_not_written() -> None:
    """As a gateway does whose session has ended: the page answers 200."""
    with flag_server() as (url, server):
        server.login = True
        with pytest.raises(FlagsUnavailable, match="answers 303"):
            HttpFlags("chat", url, "planted").write(BEGIN, Flags(enabled=False, percent=5.0))
        assert server.flags["enable_langgraph"] is True


def test_http_with_weak_tags_is_refused_at_the_start() -> None:
    """A write with one never succeeds: a ramp would learn that from its first rollback."""
    with flag_server() as (url, server):
        server.weak = "W/"
        with pytest.raises(FlagsUnavailable, match="weak ETag"):
            HttpFlags("chat", url, "planted").check()


def test_http_without_put_is_read_only() -> None:
    """By its `Allow` header."""
    with flag_server() as (url, service):
        service.allow = "GET"
        with pytest.raises(FlagsReadOnly, match="not PUT"):
            HttpFlags("chat", url, "planted").check()


def test_a_file_whose_flags_come_from_a_provider_is_read_only(tmp_path: Path) -> None:
    """Writing it would change nothing."""
    path = config(tmp_path, '[flags]\nprovider = "team.flags:provider"\n')
    with pytest.raises(FlagsReadOnly, match=r"team\.flags:provider.*--advise"):
        FileFlags(path, "chat", "ann").check()


def test_a_file_that_is_final_or_not_asked_beside_is_read_only(tmp_path: Path) -> None:
    """A service's flags count only where the file is on, and routers ask for both."""
    writer = serviced(tmp_path, FakeFlags(BEGIN))
    config(tmp_path, '[flags]\nask = ["langgraph_percent"]\n')
    with pytest.raises(FlagsReadOnly, match="enable_langgraph"):
        writer.check()
    path = config(tmp_path)
    path.write_text(path.read_text("utf-8").replace("= true", "= false"), "utf-8")
    with pytest.raises(FlagsReadOnly, match="final"):
        writer.check()
    assert writer.read() == Flags(enabled=False, percent=5.0)


def test_a_rollback_in_the_file_is_a_change_beside_a_service(tmp_path: Path) -> None:
    """`cutover rollback` during a ramp of a service's flags wins."""
    writer = serviced(tmp_path, FakeFlags(BEGIN))
    path = tmp_path / "cutover.toml"
    path.write_text(path.read_text("utf-8").replace("= true", "= false"), "utf-8")
    with pytest.raises(FlagsChanged):
        writer.write(BEGIN, Flags(enabled=True, percent=25.0))


def test_a_step_in_a_service_is_audited(tmp_path: Path) -> None:
    """As one in the file is."""
    writer = serviced(tmp_path, FakeFlags(BEGIN))
    writer.write(BEGIN, Flags(enabled=False, percent=5.0))
    (line,) = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert json.loads(line)["what"] == "rollback"
