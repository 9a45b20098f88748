"""Answers to a prompt that asks for instructions to workers: what a text asks for, then a reply.

| asked for | example | instruction |
|---|---|---|
| the machine | `disks`, `memory`, `processes`, `large files`, `磁盘`, `内存` | `system.…` |
| files | `delete temporary files *.log`, `删除临时文件 *.log` | `system.delete_temporary` |
| a connection | `db:5432` | `network.reach` |
| containers | `containers`, `logs of web`, `restart web`, `重启 web` | `container.…` |
| a release | `deploy`, `deploy release v2`, `roll back`, `部署`, `回滚` | `deploy.…` |

All that one text asks for is one step; `then`, `然后` begin the next one. When all results are
there, or one is a failure, the reply quotes their messages.
"""

import re
from typing import NamedTuple

import msgspec

from loadtests.simulator.request import RequestMessage
from loadtests.simulator.texts.prose import Language

MARKS = ('"instructions"', '"final"')
"""What the system prompt names."""
NEXT_STEP = re.compile(r"\bthen\b|\bafter that\b|然后|接着", re.IGNORECASE)
NAME = r"(?!the\b)([A-Za-z0-9][\w.-]*)"


class Wording(NamedTuple):
    """The words that ask for a worker's action; each group holds the argument of its name."""

    words: str
    worker: str
    action: str
    names: tuple[str, ...] = ()


LOGS = rf"logs? (?:of|from|for) {NAME}|{NAME}\s*的日志"
RESTART = rf"restart (?:container )?{NAME}|重启(?:容器)?\s*{NAME}"
DEPLOY = rf"\bdeploy\b(?: release {NAME})?|部署(?:版本\s*{NAME})?"
TEMPORARY = r"(?:temporary files?|临时文件)\s*([\w.-]*\*[\w.*-]*)"
WORDINGS = (
    Wording(r"\bdis[ck]s?\b|磁盘|硬盘", "system", "disk"),
    Wording(r"\bmemory\b|内存", "system", "memory"),
    Wording(r"\bprocess(?:es)?\b|进程", "system", "processes"),
    Wording(r"\b(?:large|big)(?:st)? files\b|大文件", "system", "large_files"),
    Wording(TEMPORARY, "system", "delete_temporary", ("pattern",)),
    Wording(rf"{NAME}:(\d{{1,5}})", "network", "reach", ("host", "port")),
    Wording(r"\bcontainers\b|所有容器|容器列表|有哪些容器", "container", "list"),
    Wording(LOGS, "container", "logs", ("name", "name")),
    Wording(RESTART, "container", "restart", ("name", "name")),
    Wording(DEPLOY, "deploy", "run", ("release", "release")),
    Wording(r"\broll ?back\b|回滚", "deploy", "rollback"),
)


class ReportedWork(msgspec.Struct, frozen=True):
    """A line of results, as far as it is read."""

    ok: bool
    message: str = ""


REPORT = msgspec.json.Decoder(ReportedWork)


def wanted(messages: tuple[RequestMessage, ...]) -> bool:
    """Whether the system prompt asks for instructions."""
    return any(
        message.role == "system" and all(mark in message.text for mark in MARKS)
        for message in messages
    )


def next_step(messages: tuple[RequestMessage, ...], language: Language) -> str:
    """Return the JSON of the next step: instructions, or the reply once there is no more to do."""
    request, done = "", list[list[ReportedWork]]()
    for message in messages:
        if message.role != "user":
            continue
        results = reports(message.text)
        if results or message.text.startswith("Error:"):
            done.append(results)
        else:
            request, done = message.text, []
    steps = [one for part in NEXT_STEP.split(request) if (one := instructions(part))]
    results = [one for step in done for one in step]
    if len(done) < len(steps) and all(one.ok for one in results):
        return msgspec.json.encode({"instructions": steps[len(done)]}).decode()
    nothing = "No worker is needed for that." if language == "en" else "这不需要执行任何操作。"
    final = "\n".join(one.message for one in results) or nothing
    return msgspec.json.encode({"final": final}).decode()


def reports(text: str) -> list[ReportedWork]:
    """Read the results in a message; none in what a user wrote."""
    try:
        return [REPORT.decode(line) for line in text.splitlines() if line.startswith("{")]
    except (msgspec.DecodeError, RecursionError):
        return []


def instructions(text: str) -> list[dict[str, object]]:
    """Find what a text asks for, in the order of its words."""
    found: list[tuple[int, dict[str, object]]] = []
    for words, worker, action, names in WORDINGS:
        for hit in re.finditer(words, text, re.IGNORECASE):
            args = {
                name: int(value) if name == "port" else value
                for name, value in zip(names, hit.groups(), strict=True)
                if value
            }
            found.append((hit.start(), {"worker": worker, "action": action, "args": args}))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]
