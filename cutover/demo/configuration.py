"""The configuration a demonstration runs on, and the message its planted crash strikes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutover.demo.messages import Message
from router.routing.rollout import bucket

if TYPE_CHECKING:
    from pathlib import Path

SALT = "cutover-demo"
PERCENT = 30
QA_KEY = "CUTOVER_DEMO_QA_KEY"
MARK = "demo-crash"
"""Requests whose message id begins so are the ones the planted fault strikes."""
_GRAPH_BELOW = PERCENT * 1_000

WRITTEN = "# Written by `cutover demo`."
"""How the file begins; a folder without one is somebody else's."""

_TEMPLATE = """\
{written} Change a value while the router runs: it is in force in a second.
[rollout]
salt = "{salt}"

[flows.chat]
enable_langgraph = true
langgraph_percent = {percent}.0
langgraph_fallback = true
shadow_percent = 100.0

[flows.chat.options]
yield_interval = 0.1
timezone = "Asia/Shanghai"

[flows.companion]
enable_langgraph = true
langgraph_percent = 100.0
shadow_percent = 100.0

[server]
qa_key_env = "{qa_key}"

[shadow]
queue = 2048

[stacks]
graph = "cutover.demo.faulty_stack:FLOWS"

[captures]
path = "{folder}/captures"

[captures.redact.patterns]
demo_phone = '555[/-]\\d{{3}}-\\d{{4}}'

[stores]
conversations = "sqlite:///{folder}/conversations.sqlite"
memory = "sqlite:///{folder}/memory.sqlite"
history = ""
pauses = "sqlite:///{folder}/pauses.sqlite"
"""

_MODEL = """
[providers.simulator]
base_url = "{base_url}"

[models."gpt-4.1"]
provider = "simulator"
input_price = 2.0
output_price = 8.0
"""


def configuration(folder: Path, simulator: str | None) -> str:
    """Write the demonstration's cutover.toml; without a simulator the real provider answers."""
    text = _TEMPLATE.format(
        written=WRITTEN,
        salt=SALT,
        percent=PERCENT,
        folder=folder.resolve().as_posix(),
        qa_key=QA_KEY,
    )
    return text if simulator is None else text + _MODEL.format(base_url=f"{simulator}/v1")


def crashing_message() -> Message:
    """Find an id that is assigned to graph, for a message long enough to crash in its middle."""
    message_id = next(
        f"{MARK}-{number}"
        for number in range(1_000)
        if bucket(SALT, f"{MARK}-{number}") < _GRAPH_BELOW
    )
    content = "What is 12 * 7, and what time is it in UTC? Then tell me about takeovers."
    body = {"message_id": message_id, "content": content, "user_name": "Ada"}
    return Message(message_id, message_id, body)
