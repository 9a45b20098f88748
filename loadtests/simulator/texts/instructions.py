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

import msgspec

from loadtests.simulator.request import RequestMessage
from loadtests.simulator.texts.prose import Language

MARKS = ('"instructions"', '"final"')
"""What the system prompt names."""
NEXT_STEP = re.compile(r"\bthen\b|\bafter that\b|然后|接着", re.IGNORECASE)
NAME = r"(?!the\b)([A-Za-z0-9][\w.-]*)"
PATTERNS = (
    (r"\bdis[ck]s?\b|磁盘|硬盘", "system", "disk", ()),
    (r"\bmemory\b|内存", "system", "memory", ()),
    (r"\bprocess(?:es)?\b|进程", "system", "processes", ()),
    (r"\b(?:large|big)(?:st)? files\b|大文件", "system", "large_files", ()),
    (
        r"(?:temporary files?|临时文件)\s*([\w.-]*\*[\w.*-]*)",
        *("system", "delete_temporary", ("pattern",)),
    ),
    (rf"{NAME}:(\d{{1,5}})", "network", "reach", ("host", "port")),
    (r"\bcontainers\b|所有容器|容器列表|有哪些容器", "container", "list", ()),
    (rf"logs? (?:of|from|for) {NAME}|{NAME}\s*的日志", "container", "logs", ("name", "name")),
    (
        rf"restart (?:container )?{NAME}|重启(?:容器)?\s*{NAME}",
        "container",
        "restart",
        ("name",) * 2,
    ),
    (
        rf"\bdeploy\b(?: release {NAME})?|部署(?:版本\s*{NAME})?",
        "deploy",
        "run",
        ("release", "release"),
    ),
    (r"\broll ?back\b|回滚", "deploy", "rollback", ()),
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
    asked, told = 0, []
    for position, message in enumerate(messages):
        if message.role != "user":
            continue
        lines = reports(message.text)
        if lines or message.text.startswith("Error:"):
            told.append(lines)
        else:
            asked, told = position, []
    steps = [one for part in NEXT_STEP.split(messages[asked].text) if (one := instructions(part))]
    if len(told) < len(steps) and all(one.ok for lines in told for one in lines):
        return msgspec.json.encode({"instructions": steps[len(told)]}).decode()
    said = [one.message for lines in told for one in lines]
    nothing = "No worker is needed for that." if language == "en" else "这不需要执行任何操作。"
    return msgspec.json.encode({"final": "\n".join(said) or nothing}).decode()


def reports(text: str) -> list[ReportedWork]:
    """Read the results in a message; none in what a user wrote."""
    try:
        return [REPORT.decode(line) for line in text.splitlines() if line.startswith("{")]
    except (msgspec.DecodeError, RecursionError):
        return []


def instructions(text: str) -> list[dict[str, object]]:
    """Find what a text asks for, in the order of its words."""
    found: list[tuple[int, dict[str, object]]] = []
    for pattern, worker, action, names in PATTERNS:
        for hit in re.finditer(pattern, text, re.IGNORECASE):
            args = {
                name: int(value) if name == "port" else value
                for name, value in zip(names, hit.groups(), strict=True)
                if value
            }
            found.append((hit.start(), {"worker": worker, "action": action, "args": args}))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]
