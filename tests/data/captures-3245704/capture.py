"""Capture exchanges of every flow with the code of a checkout: `capture.py CHECKOUT FOLDER`.

The simulated provider and the router of that checkout run as processes; the requests below go
through both stacks, each once as the serving one, with redaction off and on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from typing import Any
from zlib import compress, crc32

Json = dict[str, Any]


def png(side: int) -> str:
    """Return a black square as a data URL, uncompressed: captures store a large one apart."""

    def part(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

    header = part(b"IHDR", pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    rows = part(b"IDAT", compress(bytes(1 + 3 * side) * side, 0))
    whole = b"\x89PNG\r\n\x1a\n" + header + rows + part(b"IEND", b"")
    return "data:image/png;base64," + b64encode(whole).decode()


BROKEN = "data:image/jpeg;base64," + b64encode(b"\xff\xd8\xff\xe0\x00\x10JFIF").decode()
FAULTS = {
    "error": "ending=http_error&status=500",
    "limited": "ending=http_error&status=429",
    "refused": "ending=http_error&status=401",
    "cut": "ending=cut&after=6",
    "event": "ending=error_event&after=6",
    "reset": "ending=reset",
    "silent": "ending=silent",
    "stalled": "ending=stall&after=6",
    "rescued": "ending=cut&after=0&times=1",
    "undone": "ending=no_done",
}
MODELS = {
    "gpt-4.1": "sim-chat",
    "slow": "sim-chat?rate=40&tokens=64",
    "thinking": "sim-chat?reasoning=20",
    "nameless": "sim-chat?call_ids=missing",
    "doubled": "sim-chat?call_ids=duplicate",
    "endless": "sim-chat?rate=20&tokens=2000&limit=2000",
    **{name: f"sim-chat?{query}" for name, query in FAULTS.items()},
}
NO_REDACTION = """
paths = []
patterns = { email = "", card = "", id_card = "", phone = "", api_key = "" }
"""
UNREDACTED, REDACTED = "我在学骑车", "我的邮箱是 ann@example.org，电话 13912345678，请记住"


def configuration(provider: str, serving: str, model: str, wire: str, *, redacted: bool) -> str:
    """Write a configuration in which one stack serves and the other one is the shadow."""
    percent = 100 if serving == "graph" else 0
    rollout = f"""
enable_langgraph = true
langgraph_percent = {percent}
shadow_percent = 100.0
sticky = "none"
"""
    models = "\n".join(
        f'[models."{name}"]\nprovider = "simulated"\nmodel = "{called}"\n'
        for name, called in MODELS.items()
    )
    return f"""
[flows.chat]
{rollout}
[flows.chat.options]
wire = "{wire}"
yield_interval = 0.3
[flows.companion]
{rollout}
[flows.companion.options]
model_id = "{model}"
[flows.session]
{rollout}
[flows.session.options]
model_id = "{model}"
[captures]
path = "captures"
batch = 8
pseudonym_key_env = "PSEUDONYMS"
[captures.redact]
{"" if redacted else NO_REDACTION}
[limits]
loop_seconds = 0.0
[rescue]
attempts = 2
first_wait_seconds = 0.05
breaker_calls = 1000
[breaker]
enabled = false
[stores]
conversations = "sqlite:///store.sqlite"
memory = "sqlite:///store.sqlite"
pauses = "sqlite:///store.sqlite"
checkpoints = "sqlite:///threads.sqlite"
[providers.simulated]
base_url = "{provider}"
key_env = "PROVIDER_KEY"
connect_seconds = 5.0
first_byte_seconds = 1.0
first_token_seconds = 1.0
idle_seconds = 1.0
{models}
"""


class Router:
    """A running router, and what is sent to it."""

    def __init__(self, folder: Path, provider: str, serving: str) -> None:
        self._folder, self._provider, self.serving = folder, provider, serving
        self.url = ""

    def configure(
        self, serving: str | None = None, model: str = "gpt-4.1", wire: str = "strict"
    ) -> None:
        """Edit the configuration and wait until it is in force."""
        redacted = self._folder.name.endswith("redacted")
        text = configuration(
            self._provider, serving or self.serving, model, wire, redacted=redacted
        )
        (self._folder / "cutover.toml").write_text(text, "utf-8")
        time.sleep(1.5)

    def post(self, path: str, body: Json) -> list[Json]:
        """Send a request, read the answer to its end, and return what its events carry."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        connection.request("POST", path, json.dumps(body, ensure_ascii=False).encode())
        answer = connection.getresponse().read().decode()
        connection.close()
        lines = [line for line in answer.splitlines() if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def leave(self, path: str, body: Json) -> None:
        """Send a request and disconnect while its answer is streamed."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        connection.request("POST", path, json.dumps(body, ensure_ascii=False).encode())
        connection.getresponse().read(64)
        time.sleep(0.5)
        connection.close()


def chat(router: Router, says: str) -> None:
    """Send chat messages: tools, throttling, turns of one chat, ends of all kinds, refusals."""
    numbers = count(1)

    def send(content: str | None, **fields: Any) -> None:
        body = {"message_id": f"m{next(numbers)}", "user_name": "小明", "user_id": "ann", **fields}
        router.post("/chat/sse", body | ({"content": content} if content else {}))

    send(says)
    send("现在东京几点？还有 12 * 7 等于多少？然后把结果乘以 3", chat_id="c1")
    send("5 km to miles, and do you remember what I said about cycling?", chat_id="c1")
    send("Thanks. What should I do first?", chat_id="c1", prompt_params={"current_date": "today"})
    send("no such tool, then broken arguments")
    send("keep checking", model_config={"max_tool_iterations": 2})
    send("12 * 7", model_config={"enable_tools": False, "temperature": 0.2, "max_tokens": 20})
    send("一个违禁话题")
    send("写一篇很长的故事")
    send(None)
    for model in ("slow", "thinking"):
        send("怎样开始跑步？", model_config={"model_id": model})
    for model in ("nameless", "doubled"):
        send("12 * 7 and 5 km to miles", model_config={"model_id": model})
    for model in FAULTS:
        send("怎样开始跑步？", model_config={"model_id": model})
    body = {"message_id": "left", "content": "Go on", "model_config": {"model_id": "endless"}}
    router.leave("/chat/sse", body)


def companion(router: Router, says: str) -> str:
    """Send companion turns, pictures and questions; return the id of one left unanswered."""

    def say(session: str, message: str) -> str:
        body = {"session_id": session, "message": message, "user_id": "ann"}
        return question(router.post("/chat", body))

    def show(session: str, action: str, picture: str | None = None) -> str:
        image = picture or png(4)
        body = {"session_id": session, "image": image, "action": action, "user_id": "ann"}
        return question(router.post("/chat/image", body))

    def answer(hitl: str, action: str, data: Json | None = None) -> None:
        router.post("/hitl/respond", {"hitl_id": hitl, "action": action, "data": data or {}})
        router.post("/hitl/continue", {"hitl_id": hitl})

    say("s1", says)
    say("s1", "我今天很难过，一点也不开心！12 * 7 等于多少？")
    say("s1", "What time is it in Berlin? Then add 5 to 12")
    answer(say("s2", "Remind me to call mum: ask me when first."), "approve", {"when": "at six"})
    answer(say("s2", "12 * 7, and paint it, but ask me which: red or blue"), "reject")
    say("s2", "Book a table: ask me how many guests")
    say("s2", "Never mind")
    show("s3", "analyze_only")
    show("s3", "analyze_only", png(200))
    show("s3", "analyze_only", BROKEN)
    answer(show("s3", "analyze_for_memory"), "approve")
    answer(show("s4", "analyze_for_memory"), "reject")
    show("s5", "analyze_for_memory")
    say("s3", "Do you remember what was in the picture?")
    return say("s6", "Delete my notes, but ask me first")


def question(events: list[Json]) -> str:
    """Return the id of the question in an answer, "" where there is none."""
    return next((str(event["hitl_id"]) for event in events if "hitl_id" in event), "")


def session(router: Router, says: str) -> None:
    """Send turns of two sessions of one user: facts are extracted, remembered and recalled."""
    path = "/api/v1/chat"

    def say(message: str, named: str | None = None) -> str:
        body = {"message": message, "user_id": "ann"} | ({"session_id": named} if named else {})
        events = router.post(path, body)
        new = (event["data"] for event in events if event.get("type") == "session_created")
        return named or next((str(data["session_id"]) for data in new), "unknown")

    first = say(says)
    for message in ("I live in Berlin and I like cycling.", "12 * 7 等于多少？然后加 5", "谢谢"):
        say(message, first)
    second = say("Do you remember where I live?")
    say("Do you remember what I like? What time is it in London?", second)
    say("Hello", "a-session-that-does-not-exist")


def failures(router: Router, hitl: str) -> None:
    """Fail in companion and session, go on on the other stack, and use the extended wire."""
    for model in ("cut", "error", "rescued"):
        router.configure(model=model, wire="extended")
        for path in ("/chat", "/api/v1/chat"):
            fields = {"session_id": f"f-{model}"} if path == "/chat" else {}
            router.post(path, {"message": "怎样开始跑步？", "user_id": "bob", **fields})
        for name in ("thinking", "cut"):
            body = {"message_id": f"{model}-{name}", "content": "12 * 7 等于多少？"}
            router.post("/chat/sse", body | {"model_config": {"model_id": name}})
    router.configure("graph" if router.serving == "legacy" else "legacy")
    router.post("/hitl/respond", {"hitl_id": hitl, "action": "approve", "data": {"go_on": True}})
    router.post("/hitl/continue", {"hitl_id": hitl})


@contextmanager
def process(checkout: Path, folder: Path, *arguments: str) -> Iterator[str]:
    """Run a module of the checkout; yields the address it announces."""
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    environ |= {"PROVIDER_KEY": "none", "PSEUDONYMS": "a key for tests"}
    with subprocess.Popen(
        (sys.executable, "-m", *arguments),
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().split()[-1].removesuffix("/v1")
        finally:
            child.terminate()
            child.wait(60)


def capture(checkout: Path, out: Path, name: str) -> None:
    """Capture all requests with one stack serving into a folder below `out`."""
    with TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        serving = name.partition("-")[0]
        with process(checkout, folder, "loadtests.simulator") as provider:
            router = Router(folder, f"{provider}/v1", serving)
            router.configure()
            with process(checkout, folder, "cutover", "serve", "--port", "0") as url:
                router.url = url
                says = REDACTED if name.endswith("redacted") else UNREDACTED
                chat(router, says)
                open_question = companion(router, says)
                session(router, says)
                failures(router, open_question)
                time.sleep(3)  # for the last shadows
        shutil.copytree(folder / "captures", out / name)
        for segment in (out / name).glob("flow=*/date=*/*.jsonl.zst"):
            segment.rename(segment.with_name("segment.jsonl.zst"))


if __name__ == "__main__":
    for deployment in ("legacy", "graph", "legacy-redacted", "graph-redacted"):
        capture(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), deployment)
